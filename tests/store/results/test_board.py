"""The board says of what is asked exactly what all results say, whatever was added, hidden or corrected before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, select

from service.engine.measured.classes import platform_of, ram_class, speeds_by_depth, vram_class
from service.flows.results.read_results import day_of
from service.store.engines import locked
from service.store.results import board, leaderboard, results
from service.store.results.board_tables import board as board_table
from service.store.results.board_tables import result_speed
from service.store.results.results import StoredResult
from service.wire.results.board import PROVEN, BoardQuery, NamedSlug, Sort
from tests.stored_results import A_DAY, a_result, keep, row

MODELS = (("qwen3-30b-a3b", "Qwen3-30B-A3B", "qwen3moe"), ("deepseek-r1-671b", "DeepSeek-R1", "deepseek2"))
RIGS = (("2x-rtx-3090", "2x RTX 3090", 49_152), ("rtx-5090", "RTX 5090", 32_607), ("cpu-epyc-9355", "no GPU", 0))


def day_before(days: int) -> str:
    return (A_DAY - timedelta(days=days)).date().isoformat()


def since_of(asked: BoardQuery) -> datetime | None:
    return day_of(asked.since, "since") if asked.since else None


ANY = BoardQuery(trust="self-reported")
FILTERS = (
    ANY,
    BoardQuery(trust="self-reported", depth=4096),
    BoardQuery(trust="agent-run"),
    BoardQuery(trust="published"),
    BoardQuery(trust="published", q="qwen3"),
    BoardQuery(trust="replicated", depth=4096),
    BoardQuery(trust="self-reported", model="deepseek-r1-671b"),
    BoardQuery(trust="self-reported", arch="qwen3moe", vram=48),
    BoardQuery(trust="self-reported", variant="IQ4_XS"),
    BoardQuery(trust="self-reported", variant="iq4_xs", q="3090"),
    BoardQuery(trust="self-reported", engine="llama.cpp", rig="rtx-5090"),
    BoardQuery(trust="self-reported", ram=64),
    BoardQuery(trust="self-reported", platform="desktop"),
    BoardQuery(trust="self-reported", since=day_before(100)),
    BoardQuery(trust="agent-run", since=day_before(30), variant="Q4_K_M"),
    BoardQuery(trust="self-reported", q="qwen3 3090"),
    BoardQuery(trust="self-reported", q="xs"),
    BoardQuery(trust="self-reported", q="no-such-thing"),
)


def some_results(seed: int, n: int) -> list[StoredResult]:
    """Results that share few groups, of every tier, in every state."""
    draw = random.Random(seed)
    found = []
    for _ in range(n):
        slug, name, arch = draw.choice(MODELS)
        rig, gpus, vram = draw.choice(RIGS)
        speed = draw.choice((10.0, 20.0, 30.0)) if draw.random() < 0.3 else draw.uniform(5, 50)
        rows = [row(depth, speed - depth / 1000, 20 * speed) for depth in (0, 4096)[: draw.randint(1, 2)]]
        states = ("shown", "shown", "shown", "quarantined", "hidden")
        found.append(
            a_result(
                rows,
                model_slug=slug,
                model_name=name,
                arch=arch,
                rig_slug=rig,
                gpus=gpus,
                vram_mib=vram,
                variant=draw.choice(("Q4_K_M", "IQ4_XS")),
                bpw=draw.choice((4.25, 4.86)),
                engine=draw.choice(("ik_llama.cpp", "llama.cpp")),
                ram_gib=draw.choice((64, None)),
                tier=draw.choice(("self-reported", "agent-run", "replicated")),
                state=draw.choice(states),
                origin=draw.choice(("submitted", "submitted", "published")),
                measured_at=A_DAY - timedelta(days=draw.randint(0, 200)),
            )
        )
    return found


def test_what_an_older_version_made_is_made_again_once(engine: Engine, stored: list[StoredResult]) -> None:
    proven = BoardQuery(trust="published")
    before = said(engine, proven, "tg")
    assert before
    with engine.begin() as connection:
        connection.execute(board_table.delete().where(board_table.c.slice % 10 == board.TRUSTS["published"]))
    assert said(engine, proven, "tg") == []
    for _ in range(2):
        board.bring_up_to_date(engine)
        assert said(engine, proven, "tg") == before


def leaders(stored: list[StoredResult], asked: BoardQuery, order: Sort) -> list[str]:
    """What `leaderboard.page` says, found by looking at every result."""
    metric = "pp" if order == "pp" else "tg"
    best: dict[tuple[str, ...], tuple[float, StoredResult]] = {}
    for one in stored:
        speed = next((s for s in speeds_by_depth(one.rows) if s.depth == asked.depth), None)
        value = getattr(speed, f"{metric}_tps") if speed else None
        if one.state != "shown" or value is None or not wanted(one, asked):
            continue
        key = (one.model_slug, one.rig_slug, one.engine)
        if key not in best or (value, one.id) > (best[key][0], best[key][1].id):
            best[key] = (value, one)
    keys: dict[Sort, Callable[[float, StoredResult], Any]] = {
        "newest": lambda _, one: one.measured_at,
        "bits": lambda _, one: one.bpw,
    }
    read = keys.get(order, _speed)
    return [one.id for value, one in sorted(best.values(), key=lambda b: (read(*b), b[1].id), reverse=True)]


def _speed(value: float, _: StoredResult) -> float:
    return value


def wanted(one: StoredResult, asked: BoardQuery) -> bool:
    names = f"{one.model_name} {one.model_slug} {one.gpus} {one.cpu} {one.rig_slug} {one.variant}".lower()
    cited = asked.trust == "published" and (one.origin == "published" or one.tier != "self-reported")
    floor = cited or board.FLOORS[one.tier] >= board.TRUSTS[asked.trust]
    same = (
        (asked.model, one.model_slug),
        (asked.arch, one.arch),
        (asked.variant and asked.variant.lower(), one.variant.lower()),
        (asked.engine, one.engine),
        (asked.rig, one.rig_slug),
        (asked.vram, vram_class(one.vram_mib)),
        (asked.ram, ram_class(one.ram_gib)),
        (asked.platform, platform_of(one.hardware)),
    )
    since = since_of(asked)
    recent = since is None or one.measured_at >= since
    return (
        floor
        and recent
        and all(a is None or a == b for a, b in same)
        and all(map(names.__contains__, (asked.q or "").split()))
    )


def said(engine: Engine, asked: BoardQuery, order: Sort) -> list[str]:
    return [one.result_id for one in leaderboard.page(engine, replace(asked, sort=order), None, 100, since_of(asked))]


@pytest.fixture
def stored(engine: Engine) -> list[StoredResult]:
    several = some_results(1, 60)
    keep(engine, *several)
    return several


def test_every_filter_order_and_page_says_what_all_results_say(engine: Engine, stored: list[StoredResult]) -> None:
    orders: tuple[Sort, ...] = ("tg", "pp", "newest", "bits")
    for asked in FILTERS:
        for order in orders:
            assert said(engine, asked, order) == leaders(stored, asked, order), (asked, order)
    for order in orders:
        assert list(page_by_page(engine, order)) == leaders(stored, ANY, order)


def page_by_page(engine: Engine, order: Sort) -> Iterator[str]:
    after = None
    while rows := leaderboard.page(engine, replace(ANY, sort=order), after, 3):
        yield from (one.result_id for one in rows)
        after = rows[-1].position(order)


def test_what_is_hidden_shown_again_or_corrected_is_so_on_the_board(engine: Engine, stored: list[StoredResult]) -> None:
    first = said(engine, ANY, "tg")[:4]
    best = {one: next(r for r in stored if r.id == one) for one in first}
    corrected = {"model_slug": "qwen3-30b-a3b", "model_name": "Qwen3-30B-A3B", "arch": "qwen3moe"}
    changes: list[dict[str, Any]] = [{"state": "hidden"}, {"tier": "replicated"}, {"state": "quarantined"}, corrected]
    now = list(stored)
    for (name, before), values in zip(best.items(), changes, strict=True):
        with engine.begin() as connection:
            assert results.change(connection, name, **values)
        now[now.index(before)] = results.read(engine, name) or before
    for asked in FILTERS:
        assert said(engine, asked, "tg") == leaders(now, asked, "tg"), asked


def test_the_board_made_again_is_the_same(engine: Engine, stored: list[StoredResult]) -> None:
    def kept() -> tuple[Any, ...]:
        with engine.connect() as connection:
            tables = (select(table) for table in (board_table, result_speed))
            return tuple(sorted(map(tuple, connection.execute(table))) for table in tables)

    before, names = kept(), leaderboard.names(engine, "model")
    with locked(engine) as connection:
        n_results = board.rebuild(connection)
    assert n_results == sum(one.state == "shown" for one in stored)
    assert (kept(), leaderboard.names(engine, "model")) == (before, names)


def test_names_go_with_the_last_result_that_has_them(engine: Engine) -> None:
    spam = a_result(model_slug="buy-now", model_name="BUY NOW", arch="spam")
    keep(engine, a_result(), spam)
    assert leaderboard.named(engine, "model", "buy-now")
    with engine.begin() as connection:
        results.change(connection, spam.id, state="hidden")
    assert leaderboard.named(engine, "model", "buy-now") is None
    assert [one.name for one in leaderboard.names(engine, "model")] == ["Qwen3-30B-A3B"]
    assert leaderboard.names(engine, "arch") == [NamedSlug(slug="qwen3moe", name="qwen3moe")]


def test_words_are_searched_for_as_they_are(engine: Engine) -> None:
    keep(engine, a_result(), a_result(variant="IQ4_XS"))
    assert said(engine, BoardQuery(trust="self-reported", q="%"), "tg") == []
    assert len(said(engine, BoardQuery(trust="self-reported", q="iq4_xs"), "tg")) == 1
    assert said(engine, BoardQuery(trust="self-reported", q="iq4\\_xs"), "tg") == []


def test_a_variant_is_one_in_large_and_small_letters(engine: Engine) -> None:
    keep(engine, a_result(variant="Q4_0"), a_result(variant="q4_0", rig_slug="rtx-5090", gpus="RTX 5090"))
    assert len(said(engine, BoardQuery(trust="self-reported", variant="q4_0"), "tg")) == 2
    assert said(engine, BoardQuery(trust="self-reported", variant="q4"), "tg") == []


def test_submitters_at_once_leave_nobody_out(engine: Engine) -> None:
    several = [a_result([row(0, 10.0 + i)]) for i in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: keep(engine, one), several))
    [leader] = leaderboard.page(engine, ANY, None, 10)
    assert (leader.tg, leader.n_results, leader.low, leader.high) == (25.0, 16, 10.0, 25.0)


def test_a_model_has_its_variants_and_a_rig_its_models(engine: Engine) -> None:
    keep(
        engine,
        a_result([row(0, 30)], tier="agent-run"),
        a_result([row(0, 20)], tier="agent-run"),
        a_result([row(0, 40)], tier="agent-run", variant="IQ4_XS", bpw=4.25),
        a_result([row(4096, 25)], tier="agent-run", rig_slug="rtx-5090", gpus="RTX 5090"),
    )
    by_variant = leaderboard.summed(engine, "variant", 0, model="qwen3-30b-a3b")
    assert [(one.slug, one.best, one.low, one.n_results) for one in by_variant] == [
        ("IQ4_XS", 40.0, 40.0, 1),
        ("Q4_K_M", 30.0, 20.0, 2),
    ]
    assert [one.label for one in leaderboard.summed(engine, "model", 0, rig="2x-rtx-3090")] == ["Qwen3-30B-A3B"]
    assert leaderboard.depths_of(engine, PROVEN, model="qwen3-30b-a3b") == [0, 4096]


def test_similar_results_are_of_the_model_nearest_rig_first(engine: Engine) -> None:
    mine, slower, elsewhere = (
        a_result([row(0, 30)], tier="agent-run"),
        a_result([row(0, 9)], tier="agent-run", variant="Q8_0"),
        a_result([row(0, 99)], tier="agent-run", rig_slug="rtx-a6000", gpus="RTX A6000"),
    )
    keep(engine, mine, slower, elsewhere, a_result(model_slug="other", model_name="Other"))
    found = [one.result_id for one in leaderboard.similar(engine, mine.id)]
    assert found == [slower.id, elsewhere.id]
    assert leaderboard.similar(engine, "none") == []
