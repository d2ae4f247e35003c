"""Leads: ages, batches and displacement against a plain list of leads."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.streaming_metrics.leads import Leads

# what each step does: how many leads it reveals, and which open one it visits (if any)
STEPS = st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 20)), max_size=40)


@given(STEPS, st.integers(0, 40))
def test_equals_a_plain_list_at_every_step(steps, cut):
    leads, births, newest = Leads(), [], None
    for clock, (revealed, pick) in enumerate(steps):
        if clock == cut:
            state = json.loads(json.dumps(leads.state()))
            leads = Leads()
            leads.load(state)
        visited = births.pop(pick % len(births)) if births and pick is not None else None
        births += [clock] * revealed
        newest = clock if revealed else newest
        leads.reveal(revealed, clock)
        leads.visit(visited, clock)
        assert leads.open == len(births)
        assert leads.visited_age == (None if visited is None else clock - visited)
        assert leads.displaced == sum(birth != newest for birth in births)
        assert leads.oldest_age(clock) == (clock - min(births) if births else None)


def test_memory_follows_the_open_leads():
    leads = Leads()
    for clock in range(10_000):
        leads.reveal(2, clock)
        leads.visit(clock, clock + 1)
        leads.visit(clock, clock + 1)
    assert leads.open == 0
    assert len(leads._batches) == 1


def test_a_used_up_batch_still_displaces():
    leads = Leads()
    leads.reveal(2, birth=0)
    leads.reveal(1, birth=1)
    leads.visit(1, clock=2)
    assert leads.displaced == 2


def test_reset():
    leads = Leads()
    leads.reveal(2, birth=0)
    leads.visit(0, clock=5)
    leads.reset()
    assert leads.state() == Leads().state()
