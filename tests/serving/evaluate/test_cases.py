from collections import Counter

from ridgeline.serving.evaluate.cases import CHAT, SEEDS, long_case, long_text, packaged
from ridgeline.serving.policy.answers import Category


def test_every_category_has_prompts_and_names_are_unique():
    cases = packaged()
    counts = Counter(case.category for case in cases)
    assert set(counts) == set(Category) - {Category.LONG}
    assert min(counts.values()) >= 3
    assert len({case.name for case in cases}) == len(cases)


def test_only_draws_leave_sampling_to_the_server():
    for case in packaged():
        is_drawn = case.category is Category.DEFAULTS
        assert ("temperature" in case.body) is not is_drawn
        assert ("seed" in case.body) is is_drawn
        assert not {"top_p", "top_k", "min_p"} & case.body.keys()


def test_draws_have_a_seed_each_and_both_apis():
    drawn = [case for case in packaged() if case.category is Category.DEFAULTS]
    assert Counter(case.path for case in drawn) == {case.path: SEEDS for case in drawn}
    assert len({case.path for case in drawn}) == 2


def test_a_long_prompt_begins_with_what_it_asks_for():
    text = long_text(50)
    assert text.startswith("The code word")
    assert text.count("LANTERN") == 1
    assert text.endswith("then say why.")
    assert len(text.splitlines()) == 52
    assert long_case("50%", 50).path == CHAT
