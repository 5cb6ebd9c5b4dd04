"""Generate from a prompt file with exported graphs and print the token protocol, plainly or with MTP.

Time stamps are taken when something happens and printed when its prompt has ended (`--flush prompt`),
so that neither encoding nor a slow pipe is measured.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import msgspec

import mtplab
from mtplab.litert.errors import LiteRtError
from mtplab.litert.runtime import ACCELERATORS, LiteRtBackbone, LiteRtHead
from mtplab.speculation.adaptive import DraftPolicy, make_policy
from mtplab.speculation.decode import (
    EndRecord,
    Record,
    RoundRecord,
    TokenRecord,
    decode_plain,
    decode_speculative,
)
from mtplab.speculation.sampling import Chooser, Greedy, Sampled
from mtplab.tokenrunner.protocol import ProtocolWriter, output_sha256

PROGRAM = "mtplab-tokenrunner"
EXIT_OK, EXIT_USAGE, EXIT_FAILED = 0, 1, 4


class UsageError(Exception):
    """The command line or a file it names cannot be used; its text is one complete sentence."""


class Prompt(msgspec.Struct, frozen=True, rename={"klass": "class"}):
    """One line of a prompt file: text that already carries its chat template, or its token ids."""

    id: str
    klass: str = "unknown"
    text: str | None = None
    tokens: list[int] | None = None
    templated: bool = False
    """The text carries the model's chat template, special tokens and all: the tokenizer adds none."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{PROGRAM}: {message}; see --help.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description="Print a time stamp for every token and every draft round.")
    parser.add_argument("--backbone", type=Path, required=True, help="backbone.tflite")
    parser.add_argument("--head", type=Path, help="head.tflite, needed with --mtp on")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json")
    parser.add_argument("--prompts", type=Path, required=True, help="JSON lines: id, class, text or tokens")
    parser.add_argument("--class", dest="classes", action="append", default=[], help="run prompts of this class only")
    parser.add_argument("--max-tokens", type=int, default=48, help="output limit of each prompt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--head-threads", type=int, help="threads of the draft head; as --threads unless given")
    parser.add_argument("--backend", choices=ACCELERATORS, default="cpu", help="where the backbone runs")
    parser.add_argument("--head-backend", choices=ACCELERATORS, help="where the head runs; as --backend unless given")
    parser.add_argument("--mtp", choices=("on", "off"), default="off")
    parser.add_argument("--warmup-prompts", type=int, default=1, help="run the first N prompts once before, labelled")
    parser.add_argument("--stop-id", type=int, action="append", default=[], help="token id that ends an output")
    parser.add_argument("--run", default="run", help="identifier repeated in every line")
    parser.add_argument(
        "--draft-length", help="fixed:N, adaptive:additive or adaptive:tiers; the longest exported unless given"
    )
    parser.add_argument("--draft-lengths", default="", help="γ,… that a policy may choose; all exported unless given")
    parser.add_argument("--round-costs", default="", help="γ:cost,… in plain decode steps, for adaptive:tiers")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    parser.add_argument("--top-k", type=int, help="sample among the K most likely tokens only")
    parser.add_argument("--seed", type=int, default=0, help="of sampling; greedy decoding draws nothing")
    parser.add_argument(
        "--ranks", action="store_true", help="draft by logits, so that the rank of a missed token is known; slower"
    )
    parser.add_argument("--flush", choices=("prompt", "line"), default="prompt")
    return parser


def read_prompts(path: Path) -> list[Prompt]:
    """Read a prompt file; `UsageError` names the line that cannot be used."""
    prompts = []
    # Not splitlines(): it also breaks at U+2028 and its like, which may stand inside a JSON string.
    for number, line in enumerate(_read(path, "prompt file").decode("utf-8", "replace").split("\n"), 1):
        if not line.strip():
            continue
        try:
            prompt = msgspec.json.decode(line, type=Prompt)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"Line {number} of {path} is no prompt ({error}); give id, class and text.") from error
        if not prompt.text and not prompt.tokens:
            raise UsageError(f"Line {number} of {path} has neither text nor tokens; give one of them.")
        prompts.append(prompt)
    if not prompts:
        raise UsageError(f"The prompt file {path} holds no prompt; give one JSON object a line.")
    return prompts


def _of_classes(prompts: list[Prompt], classes: list[str]) -> list[Prompt]:
    """The prompts of these classes, all of them where none is named."""
    without = sorted(set(classes) - {p.klass for p in prompts})
    if without:
        raise UsageError(f"The prompt file holds no prompt of the class {without[0]!r}; name one that it holds.")
    return [p for p in prompts if not classes or p.klass in classes]


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"The {what} {path} cannot be read ({error.strerror}); check the path.") from error


def load_tokenizer(path: Path) -> Any:
    """A tokenizer.json; `UsageError` where it is none."""
    data = _read(path, "tokenizer")
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(data.decode())
    except Exception as error:  # the library raises bare Exception for every bad file
        raise UsageError(f"The tokenizer {path} cannot be used ({error}); give a tokenizer.json.") from error


class _Session:
    """Everything loaded once, and the loop over prompts."""

    def __init__(self, options: argparse.Namespace, writer: ProtocolWriter) -> None:
        if options.mtp == "on" and options.head is None:
            raise UsageError("--mtp on needs a draft head; give --head FILE or use --mtp off.")
        self.head_threads = options.threads if options.head_threads is None else options.head_threads
        if min(options.max_tokens, options.threads, self.head_threads) < 1 or options.warmup_prompts < 0:
            raise UsageError("--max-tokens and the threads must be 1 or more, and --warmup-prompts 0 or more.")
        self.options, self.writer = options, writer
        self.prompts = _of_classes(read_prompts(options.prompts), options.classes)
        self.tokenizer = load_tokenizer(options.tokenizer)
        self.stop = frozenset(options.stop_id)
        try:
            self.backbone = LiteRtBackbone(options.backbone, options.threads, accelerator=options.backend)
            self.head = (
                LiteRtHead(
                    options.head,
                    self.head_threads,
                    options.head_backend or options.backend,
                    self.backbone,
                    ranked=options.ranks,
                )
                if options.mtp == "on"
                else None
            )
        except LiteRtError as error:
            raise UsageError(str(error)) from error
        if options.temperature < 0:
            raise UsageError(f"--temperature must be 0 (greedy) or more, not {options.temperature:g}.")
        self.gammas = self._gammas(self.head) if self.head is not None else ()
        self.draft_length = options.draft_length or (f"fixed:{self.gammas[-1]}" if self.gammas else None)
        try:
            if self.head is not None:
                self._policy()
            self._chooser()
        except ValueError as error:
            raise UsageError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error

    def _gammas(self, head: LiteRtHead) -> tuple[int, ...]:
        """Lengths that both can do: a head may cut a longer draft, a backbone verifies only what was exported."""
        both = tuple(gamma for gamma in self.backbone.gammas if gamma <= head.gamma)
        if not both or head.gamma not in self.backbone.gammas:
            raise UsageError(
                f"The head drafts {head.gamma} tokens but the backbone verifies "
                f"{', '.join(map(str, self.backbone.gammas))}; export both with the same gamma."
            )
        wanted = _draft_lengths(self.options.draft_lengths) or both
        if not set(wanted) <= set(both):
            raise UsageError(
                f"Of the draft lengths {', '.join(map(str, wanted))} only {', '.join(map(str, both))} are exported; "
                "leave the others out, or export them."
            )
        return wanted

    def _policy(self) -> DraftPolicy:
        """A fresh policy for a prompt: every request begins anew."""
        assert self.draft_length is not None
        return make_policy(self.draft_length, self.gammas, _round_costs(self.options.round_costs))

    def _chooser(self) -> Chooser:
        options = self.options
        if options.temperature == 0:
            return Greedy()
        return Sampled(options.temperature, options.seed, options.top_k)

    def describe(self) -> None:
        """Write `env`: all that a figure of this process depends on."""
        options, backbone, head = self.options, self.backbone, self.head
        self.writer.write(
            "env",
            mtp=options.mtp,
            threads=options.threads,
            head_threads=self.head_threads if head is not None else None,
            backend=options.backend,
            head_backend=(options.head_backend or options.backend) if head is not None else None,
            cpus=os.cpu_count(),
            gamma=self._longest_drafted() if head is not None else None,
            gammas=list(self.gammas),
            draft_length=self.draft_length if head is not None else None,
            max_tokens=options.max_tokens,
            seed=options.seed,
            stop_ids=sorted(self.stop),
            decoding="sampled" if options.temperature else "greedy",
            temperature=options.temperature,
            top_k=options.top_k,
            context=backbone.context_limit,
            cache_mode=backbone.cache_mode,
            drafts_by=None if head is None else "ids" if head.chooses else "logits",
            backbone={
                **describe_file(options.backbone),
                "init_ms": backbone.init_ms,
                "first_run_ms": backbone.first_run_ms,
            },
            head=None
            if head is None
            else {
                **describe_file(options.head),
                "init_ms": head.init_ms,
                "first_run_ms": {"draft": head.first_run_ms},
            },
            tokenizer=describe_file(options.tokenizer),
            prompts={**describe_file(options.prompts), "count": len(self.prompts)},
            runtime=f"ai-edge-litert {metadata.version('ai-edge-litert')}",
            abi=platform.machine(),
            flush=options.flush,
        )
        self.writer.flush()

    def _longest_drafted(self) -> int:
        kind, _, rest = (self.draft_length or "").partition(":")
        return int(rest) if kind == "fixed" else self.gammas[-1]

    def run(self) -> None:
        for prompt in self.prompts[: self.options.warmup_prompts]:
            self._one(prompt, warmup=True)
        for prompt in self.prompts:
            self._one(prompt, warmup=False)

    def _one(self, prompt: Prompt, *, warmup: bool) -> None:
        self.backbone.reset()
        began = time.monotonic_ns()  # TTFT counts from the request, so tokenisation is inside
        adds = not prompt.templated
        tokens = prompt.tokens or self.tokenizer.encode(prompt.text, add_special_tokens=adds).ids
        fields = {"prompt": prompt.id, "class": prompt.klass, "input_tokens": len(tokens), "warmup": warmup}
        if self.options.flush == "line":
            self.writer.write("begin", began, **fields)
            self._print(self._records(prompt, tokens), flush=True)
        else:
            records = list(self._records(prompt, tokens))
            self.writer.write("begin", began, **fields)
            self._print(iter(records), flush=False)
        self.writer.flush()

    def _records(self, prompt: Prompt, tokens: list[int]) -> Iterator[Record]:
        limit = self.options.max_tokens
        try:
            if self.head is None:
                yield from decode_plain(
                    self.backbone, tokens, limit=limit, stop=self.stop, chooser=self._chooser()
                )
            else:
                yield from decode_speculative(
                    self.backbone, self.head, tokens, limit=limit, stop=self.stop,
                    policy=self._policy(), chooser=self._chooser(),
                )  # fmt: skip
        except (ValueError, ArithmeticError, LiteRtError) as error:
            raise LiteRtError(f"Prompt {prompt.id} could not be decoded: {str(error).rstrip('.')}.") from error

    def _print(self, records: Iterator[Record], *, flush: bool) -> None:
        output: list[int] = []
        for record in records:
            fields = msgspec.structs.asdict(record)
            t_ns = fields.pop("t_ns")
            if isinstance(record, TokenRecord):
                output.append(record.id)
                if record.margin is None:
                    del fields["margin"]
                self.writer.write("token", t_ns, **fields)
            elif isinstance(record, RoundRecord):
                if record.handover_ns is None:
                    del fields["handover_ns"]
                self.writer.write("round", t_ns, **fields)
            elif isinstance(record, EndRecord):
                self.writer.write("end", t_ns, **fields, output_sha256=output_sha256(output))
            if flush:
                self.writer.flush()


def _draft_lengths(text: str) -> tuple[int, ...]:
    """Draft lengths out of `1,3`, ascending; none where nothing is given."""
    try:
        return tuple(sorted({int(part) for part in text.split(",")})) if text else ()
    except ValueError:
        raise UsageError(f"--draft-lengths takes whole numbers such as 1,3, not {text!r}.") from None


def _round_costs(text: str) -> dict[int, float] | None:
    """K(γ) by γ out of `1:1.4,3:1.6`; None where nothing is given."""
    if not text:
        return None
    try:
        return {int(gamma): float(cost) for gamma, cost in (part.split(":") for part in text.split(","))}
    except ValueError:
        raise UsageError(f"--round-costs takes γ:cost pairs such as 1:1.4,3:1.6, not {text!r}.") from None


def describe_file(path: Path) -> dict[str, Any]:
    """Name, hash and size of a file, for `env`."""
    data = path.read_bytes()
    return {"file": path.name, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 done, 1 usage, 4 failed while generating."""
    writer: ProtocolWriter | None = None
    try:
        options = _parser().parse_args(argv)
        writer = ProtocolWriter(sys.stdout.buffer, options.run)
        writer.write("hello", program=PROGRAM, version=mtplab.__version__, pid=os.getpid())
        writer.flush()
        session = _Session(options, writer)
        session.describe()
        session.run()
        writer.close()
    except UsageError as error:
        return _fail(writer, str(error), EXIT_USAGE)
    except LiteRtError as error:
        return _fail(writer, str(error), EXIT_FAILED)
    except BrokenPipeError:
        # Nobody reads any more; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return EXIT_OK


def _fail(writer: ProtocolWriter | None, message: str, code: int) -> int:
    if writer is not None:
        writer.write("error", message=message, exit_code=code)
        writer.flush()
    print(message, file=sys.stderr)
    return code
