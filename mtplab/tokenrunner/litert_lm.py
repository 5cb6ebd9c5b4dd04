"""Generate with LiteRT-LM from a `.litertlm` bundle and print the token protocol, as the token runner does.

A program of its own: the runtime writes to file descriptor 2 as it likes, so it runs in a subprocess. Stamps are the
arrival of streamed pieces: tokens of one piece share theirs. Tokens are counted by the tokenizer, and the runtime's
own totals stand beside them under `runtime`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import mtplab
from mtplab.tokenrunner.arrivals import STAMPS, Piece, Request, write_prompt
from mtplab.tokenrunner.protocol import ProtocolWriter
from mtplab.tokenrunner.runner import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    Prompt,
    UsageError,
    describe_file,
    load_tokenizer,
    read_prompts,
)

PROGRAM = "mtplab-litert-lm"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, exit_on_error=False)
    parser.add_argument("--bundle", type=Path, required=True, help="a .litertlm file")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json, to count by")
    parser.add_argument("--prompts", type=Path, required=True, help="JSON lines: id, class, text")
    parser.add_argument("--max-tokens", type=int, default=48, help="output limit of each prompt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--mtp", choices=("on", "off"), default="off", help="speculative decoding")
    parser.add_argument("--gamma", type=int, help="draft length of the bundle; without it no round can be told")
    parser.add_argument("--api", choices=("session", "conversation"), default="session",
                        help="conversation: the bundle's own chat template is put around each text")  # fmt: skip
    parser.add_argument("--warmup-prompts", type=int, default=1, help="run the first N prompts once before, labelled")
    parser.add_argument("--run", default="run", help="identifier repeated in every line")
    return parser


class _Session:
    """One engine, and the loop over prompts."""

    def __init__(self, options: argparse.Namespace, writer: ProtocolWriter) -> None:
        if options.max_tokens < 1 or options.threads < 1 or options.warmup_prompts < 0:
            raise UsageError("--max-tokens and --threads must be 1 or more, and --warmup-prompts 0 or more.")
        self.options, self.writer = options, writer
        self.prompts = read_prompts(options.prompts)
        for prompt in self.prompts:
            if prompt.text is None:
                raise UsageError(f"Prompt {prompt.id} gives only token ids, and LiteRT-LM takes text; give its text.")
            if prompt.templated and options.api == "conversation":
                raise UsageError(
                    f"Prompt {prompt.id} carries its chat template already, and a conversation puts the bundle's "
                    "around it again; use --api session, or give the bare text."
                )
        self.tokenizer = load_tokenizer(options.tokenizer)
        self.runtime = _import()
        self.engine = self._open()

    def _open(self) -> Any:
        options, runtime = self.options, self.runtime
        if not options.bundle.is_file():
            raise UsageError(f"There is no bundle {options.bundle}; write one with `mtplab bundle`.")
        runtime.set_min_log_severity(runtime.LogSeverity.VERBOSE)
        began = time.perf_counter()
        try:
            engine = runtime.Engine(
                str(options.bundle),
                backend=runtime.Backend.CPU(thread_count=options.threads),
                enable_benchmark=True,  # without it the runtime counts nothing
                enable_speculative_decoding=options.mtp == "on",
                cache_dir=":nocache",
            )
        except RuntimeError as error:
            raise UsageError(
                f"LiteRT-LM does not load {options.bundle.name} ({error}); its log on standard error says why."
            ) from error
        self.init_ms = (time.perf_counter() - began) * 1e3
        return engine

    def describe(self) -> None:
        """Write `env`: all that a figure of this process depends on."""
        options = self.options
        self.writer.write(
            "env",
            mtp=options.mtp,
            threads=options.threads,
            cpus=os.cpu_count(),
            gamma=options.gamma if options.mtp == "on" else None,
            draft_length=f"fixed:{options.gamma}" if options.mtp == "on" and options.gamma else None,
            max_tokens=options.max_tokens,
            decoding="greedy",
            temperature=0.0,
            api=options.api,
            stamps=STAMPS,
            stop_ids=[token for union in self.engine.eos_token_ids for token in union],
            bundle={**describe_file(options.bundle), "init_ms": self.init_ms},
            tokenizer=describe_file(options.tokenizer),
            prompts={**describe_file(options.prompts), "count": len(self.prompts)},
            runtime=f"litert-lm {metadata.version('litert-lm-api')}",
            abi=platform.machine(),
        )
        self.writer.flush()

    def run(self) -> None:
        for prompt in self.prompts[: self.options.warmup_prompts]:
            self._one(prompt, warmup=True)
        for prompt in self.prompts:
            self._one(prompt, warmup=False)

    def close(self) -> None:
        """End the engine: only then its drafter tells its success rate."""
        self.engine.close()

    def _one(self, prompt: Prompt, *, warmup: bool) -> None:
        with self._session() as session:
            began = time.monotonic_ns()
            pieces = [Piece(text, time.monotonic_ns()) for text in self._pieces(session, prompt.text or "")]
            ended = time.monotonic_ns()
            info = session.get_benchmark_info()
        options = self.options
        request = Request(
            prompt=prompt.id,
            klass=prompt.klass,
            warmup=warmup,
            limit=options.max_tokens,
            gamma=options.gamma if options.mtp == "on" else None,
        )
        write_prompt(self.writer, self.tokenizer, request, pieces, began, ended, _totals(info))

    def _session(self) -> contextlib.AbstractContextManager[Any]:
        runtime, limit = self.runtime, self.options.max_tokens
        greedy = runtime.SamplerConfig(top_k=1, top_p=1.0, temperature=1.0, seed=0)
        if self.options.api == "conversation":
            return self.engine.create_conversation(sampler_config=greedy, max_output_tokens=limit)
        return self.engine.create_session(
            apply_prompt_template=False, sampler_config=greedy, max_output_tokens=limit
        )

    def _pieces(self, session: Any, text: str) -> Iterator[str]:
        if self.options.api == "conversation":
            for message in session.send_message_async(text):
                yield "".join(part.get("text", "") for part in message["content"])
            return
        session.run_prefill([text])
        for response in session.run_decode_async():
            yield response.texts[0]


def _totals(info: Any) -> dict[str, float]:
    """The runtime's own figures of one prompt; its time to first token is prefill + decode ÷ n, seen by nobody."""
    return {
        "decode_tokens": int(info.last_decode_token_count),
        "decode_tokens_per_s": info.last_decode_tokens_per_second,
        "prefill_tokens": int(info.last_prefill_token_count),
        "prefill_tokens_per_s": info.last_prefill_tokens_per_second,
        "ttft_derived_ms": info.time_to_first_token_in_second * 1e3,
    }


def _import() -> Any:
    try:
        import litert_lm
    except ImportError as error:
        raise UsageError(
            f"LiteRT-LM cannot be imported ({error}); install it: pip install 'mtplab[runtime]'."
        ) from error
    return litert_lm


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 done, 1 usage, 4 failed while generating."""
    writer: ProtocolWriter | None = None
    try:
        try:
            options = _parser().parse_args(argv)
        except argparse.ArgumentError as error:
            raise UsageError(f"{PROGRAM}: {error}; see --help.") from error
        writer = ProtocolWriter(sys.stdout.buffer, options.run)
        writer.write("hello", program=PROGRAM, version=mtplab.__version__, pid=os.getpid())
        writer.flush()
        session = _Session(options, writer)
        session.describe()
        session.run()
        session.close()
        writer.close()
    except UsageError as error:
        return _fail(writer, str(error), EXIT_USAGE)
    except RuntimeError as error:
        return _fail(writer, f"LiteRT-LM failed while generating ({error}); its log says why.", EXIT_FAILED)
    return EXIT_OK


def _fail(writer: ProtocolWriter | None, message: str, code: int) -> int:
    if writer is not None:
        writer.write("error", message=message)
        writer.flush()
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
