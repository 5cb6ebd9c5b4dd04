"""The protocol reader takes what is whole, counts what is not, and never calls a cut stream complete."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtplab.measure.protocol import LINE_LIMIT_BYTES, ProtocolReader, parse
from mtplab.speculation.decode import EndRecord, RoundRecord, TokenRecord
from mtplab.tokenrunner.protocol import ProtocolWriter, output_sha256


def test_a_whole_stream_is_complete(lines):
    run = parse(lines().add("hello", 0, program="x").add("env", 1, threads=2).prompt().prompt("p2").closed())
    assert run.complete and run.reason is None and run.damage == () and run.noise_lines == 0
    assert (run.run, run.hello["program"], run.env["threads"]) == ("r1", "x", 2)
    assert [p.prompt for p in run.measured()] == ["p1", "p2"]
    first = run.prompts[0]
    assert [t.id for t in first.tokens] == [100, 101, 102, 103]
    assert [(r.accepted, r.emitted) for r in first.rounds] == [(1, 2), (0, 1)]


def test_noise_of_other_programs_and_carriage_returns_do_no_harm(lines):
    data = lines().prompt().closed().replace(b"\n", b"\r\n")
    run = parse(b"INFO: Created TensorFlow Lite XNNPACK delegate\r\n\r\n" + data)
    assert run.complete and run.noise_lines == 1


def test_the_warm_up_is_kept_apart(lines):
    stream = lines()
    stream.add("begin", 0, prompt="w", warmup=True).add("end", 5, reason="limit", output_tokens=0)
    run = parse(stream.prompt().closed())
    assert [p.prompt for p in run.prompts] == ["w", "p1"] and [p.prompt for p in run.measured()] == ["p1"]


def test_a_stream_without_done_is_incomplete(lines):
    run = parse(lines().prompt().closed().rsplit(b"\n", 2)[0])
    assert not run.complete and "done line was never seen" in run.reason
    assert len(run.measured()) == 1


def test_a_cut_prompt_is_kept_but_gives_nothing(lines):
    whole = lines().prompt("p1").prompt("p2").closed()
    cut = parse(whole[: whole.rindex(b'"type": "end"')])
    assert not cut.complete
    assert [p.prompt for p in cut.measured()] == ["p1"]
    assert cut.prompts[1].problem is not None


def test_an_error_of_the_process_is_the_reason(lines):
    run = parse(b"".join(x + b"\n" for x in lines().add("error", 1, message="no \x1b[31mmemory").lines))
    assert not run.complete and run.error == "no memory" and "no memory" in run.reason


def test_a_changed_byte_is_noticed_by_the_hash(lines):
    data = lines().prompt().closed()
    run = parse(data.replace(b'"accepted": 1', b'"accepted": 0', 1))
    assert not run.complete and "hash" in run.reason


def test_a_changed_token_spoils_its_prompt(lines):
    run = parse(lines().prompt().closed().replace(b'"id": 102', b'"id": 999', 1))
    assert "hash" in run.prompts[0].problem and run.measured() == ()


def test_a_lost_line_is_noticed_by_its_number_and_spoils_its_prompt(lines):
    stream = lines().prompt("p1").prompt("p2")
    data = stream.closed().split(b"\n")
    run = parse(b"\n".join(data[:3] + data[4:]))
    assert run.damaged >= 1 and "missing before line" in run.damage[0].what
    assert run.prompts[0].problem is not None and run.prompts[1].problem is None
    assert not run.complete


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b'{"v":1,"run":"r1","seq":0,"type":"tok', "cannot be read"),
        (b'{"v":1,"run":"r1","seq":"0","type":"hello","t_ns":0}', "cannot be read"),
        (b'{"v":1,"run":"r1","seq":0,"type":"hello","t_ns":-5}', "cannot be read"),
        (b'{"v":1,"run":"r1","seq":0,"type":"surprise","t_ns":0}', "cannot be read"),
        (b'{"v":2,"run":"r1","seq":0,"type":"hello","t_ns":0}', "version 2"),
        (b'{"v":1,"run":"other","seq":0,"type":"token","t_ns":0,"id":1}', "outside any prompt"),
        (b'{"x":' + b"[" * 5000, "cannot be read"),
        (b"{\xff\xfe}", "cannot be read"),
        (b"{" + b" " * LINE_LIMIT_BYTES + b"}", "bytes"),
        (
            b'{"v":1,"run":"r1","seq":0,"type":"token","t_ns":0,"id":99999999999999999999999}',
            "cannot be read",
        ),
    ],
)
def test_hostile_lines_are_counted_as_damage(bad, says):
    run = parse(bad)
    assert run.damaged == 1 and says in run.damage[0].what and not run.complete


def test_lines_of_another_run_and_rounds_that_cannot_be(lines):
    stream = lines().add("begin", 0, prompt="p")
    stream.add("round", 1, round=0, gamma=3, accepted=4, ranks=[])
    foreign = json.dumps({"v": 1, "run": "r2", "seq": 2, "type": "hello", "t_ns": 0}).encode()
    again = stream.lines[0]
    run = parse(b"\n".join([*stream.lines, foreign, again]))
    assert [d.what for d in run.damage] == [
        "a round that accepted 4 of 3 with 0 ranks", "a line of another run", "line 0 again or out of order",
    ]  # fmt: skip
    assert run.prompts[0].rounds == ()


def test_escapes_in_names_are_stripped(lines):
    run = parse(lines().prompt("p\x1b[2J1\x07", "c\x1b]0;x\x07").closed())
    assert run.prompts[0].prompt == "p1" and "\x1b" not in run.prompts[0].klass


def test_time_that_goes_backwards_spoils_the_prompt(lines):
    run = parse(lines().prompt(token_ms=(20, 30, 25)).closed())
    assert "backwards" in run.prompts[0].problem


def test_lines_after_done_and_a_wrong_count(lines):
    data = lines().prompt().closed()
    late = parse(data + data.splitlines()[0].replace(b'"seq": 0', b'"seq": 99') + b"\n")
    assert any(d.what == "a line after done" for d in late.damage) and not late.complete
    run = parse(data.replace(b'"count": ', b'"count": 1'))
    assert not run.complete and "done counts" in run.reason


def test_the_reader_can_be_asked_while_lines_still_come(lines):
    reader = ProtocolReader()
    for line in lines().prompt().closed().splitlines()[:-1]:
        reader.feed(line)
    assert len(reader.result().prompts) == 1 and not reader.result().complete


@given(st.lists(st.one_of(st.binary(max_size=60), st.binary(max_size=40).map(lambda b: b"{" + b))))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_no_bytes_at_all_break_the_reader(chunks):
    run = parse(b"\n".join(chunks))
    assert not run.complete and run.prompts == ()


def test_the_reader_reads_what_the_token_runner_writes(toy_records):
    stream = io.BytesIO()
    writer = ProtocolWriter(stream, "r1")
    writer.write("hello", 0, program="x")
    writer.write("begin", 0, prompt="p1", input_tokens=2, warmup=False, **{"class": "templated"})
    ids = []
    for record in toy_records:
        fields = msgspec.structs.asdict(record)
        if isinstance(record, TokenRecord):
            ids.append(record.id)
        if isinstance(record, EndRecord):
            fields["output_sha256"] = output_sha256(ids)
        writer.write(type(record).__struct_config__.tag, fields.pop("t_ns"), **fields)
    writer.close()
    run = parse(stream.getvalue())
    assert run.complete, run.reason
    [prompt] = run.measured()
    assert [t.id for t in prompt.tokens] == ids
    rounds = [r for r in toy_records if isinstance(r, RoundRecord)]
    assert [(r.accepted, r.ranks, r.draft_ns) for r in prompt.rounds] == [
        (r.accepted, r.ranks, r.draft_ns) for r in rounds
    ]
    assert prompt.reason == "limit"


def test_what_a_process_says_of_itself_is_clean_and_bounded(lines):
    run = parse(lines().add("hello", 0, program="x\x1b[31m\u202e").prompt().closed())
    assert run.complete and run.hello["program"] == "x"
    for hostile in ("[" * 40 + "]" * 40, "9" * 5000, "1e308"):
        data = lines().prompt().closed()
        line = b'{"v":1,"run":"r1","seq":0,"t_ns":0,"type":"env","x":' + hostile.encode() + b"}\n"
        assert parse(line + data).env == {} and parse(line + data).damaged >= 1
