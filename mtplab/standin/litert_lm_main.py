"""The stand-in's litert_lm_advanced_main: runs a pushed `.litertlm` bundle with LiteRT-LM, and prints as that does.

It takes the flags of LiteRT-LM's larger program and echoes the prompt like its smaller one. Times are this host's.
"""

from __future__ import annotations

import re
import sys
import time
from typing import Any

# Name: (default, what absl says of it).
FLAGS = {
    "backend": ("cpu", "Executor backend to use for LLM execution (cpu, gpu, etc.)"),
    "model_path": ("", "Model path to use for LLM execution."),
    "input_prompt": ("What is the tallest building in the world?", "Input prompt to use for testing LLM execution."),
    "max_output_tokens": ("-1", "Maximum number of output tokens for generation."),
    "num_cpu_threads": ("0", "If greater than 0, the number of CPU threads to use for the LLM execution."),
    "enable_speculative_decoding": ("false", "Whether to use speculative decoding."),
    "async": ("true", "Run the LLM execution asynchronously."),
    "benchmark": ("false", "Benchmark the LLM execution."),
}
RULE = "-" * 50


class Fault(Exception):
    """What the real program would end with, as absl words it."""


def flags_of(words: list[str]) -> dict[str, str]:
    """Values by name; Fault for a flag that there is none of."""
    values = {name: default for name, (default, _) in FLAGS.items()}
    for word in words:
        found = re.fullmatch(r"--(\w+)=(.*)", word, re.DOTALL)
        if found is None or found[1] not in FLAGS:
            raise Fault(f"ERROR: Unknown command line flag '{word.lstrip('-').partition('=')[0]}'")
        values[found[1]] = found[2]
    return values


def helpfull() -> str:
    """All flags as absl lists them."""
    rows = (f'    --{name} ({what}); default: "{default}";' for name, (default, what) in FLAGS.items())
    return "litert_lm_advanced_main: (the stand-in's)\n\n  Flags from runtime/engine:\n" + "\n".join(rows)


def run(flags: dict[str, str]) -> None:
    """Load, echo the prompt, stream the answer, report."""
    try:
        import litert_lm
    except ImportError as error:
        raise Fault(f"This host has no LiteRT-LM ({error}): pip install 'mtplab[runtime]'") from error
    if flags["backend"] != "cpu":
        raise Fault(f"INVALID_ARGUMENT: Unsupported backend: {flags['backend']}")
    litert_lm.set_min_log_severity(litert_lm.LogSeverity.VERBOSE)
    threads, limit = int(flags["num_cpu_threads"]), int(flags["max_output_tokens"])
    began = time.perf_counter()
    try:
        engine = litert_lm.Engine(
            flags["model_path"],
            backend=litert_lm.Backend.CPU(thread_count=threads or None),
            enable_benchmark=flags["benchmark"] == "true",
            enable_speculative_decoding=flags["enable_speculative_decoding"] == "true",
            cache_dir=":nocache",
        )
    except RuntimeError as error:
        raise Fault(f"INTERNAL: {error}") from error
    init_ms = (time.perf_counter() - began) * 1e3
    greedy = litert_lm.SamplerConfig(top_k=1, top_p=1.0, temperature=1.0, seed=0)
    with engine, engine.create_conversation(
        sampler_config=greedy, max_output_tokens=limit if limit > 0 else None
    ) as conversation:  # fmt: skip
        _say(f"input_prompt: {flags['input_prompt']}\n")
        for message in conversation.send_message_async(flags["input_prompt"]):
            _say("".join(part.get("text", "") for part in message["content"]))
        if flags["benchmark"] == "true":
            _say("\n\n" + report(conversation.get_benchmark_info(), init_ms))


def report(info: Any, init_ms: float) -> str:
    """BenchmarkInfo as runtime/engine/io_types.cc writes it."""
    parts = [
        f"  Init Phases (1):\n    - Executor initialization: {init_ms:.2f} ms\n    Total init time: {init_ms:.2f} ms"
    ]
    parts.append(f"  Time to first token: {info.time_to_first_token_in_second:.2f} s")
    for name, tokens, speed in (
        ("Prefill", info.last_prefill_token_count, info.last_prefill_tokens_per_second),
        ("Decode", info.last_decode_token_count, info.last_decode_tokens_per_second),
    ):
        took = tokens / speed if speed else 0.0
        parts.append(
            f"  {name} Turns (Total 1 turns):\n"
            f"    {name} Turn 1: Processed {tokens} tokens in {took:.9g}s duration.\n"
            f"      {name} Speed: {speed:.2f} tokens/sec."
        )
    return "BenchmarkInfo:\n" + f"\n{RULE}\n".join(parts) + f"\n{RULE}\n"


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main(words: list[str]) -> int:
    """The program; 1 where it ends early, as absl does."""
    if "--helpfull" in words:
        print(helpfull())
        return 1
    try:
        run(flags_of(words))
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
