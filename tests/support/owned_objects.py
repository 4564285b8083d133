"""Hypothesis strategies for objects with every kind of field that server-side apply merges in its own way."""

from hypothesis import strategies as st

from dracpu_sandbox.apiserver.fieldsets import Shape
from dracpu_sandbox.apiserver.kinds.kind import ATOMIC, ListType

LISTS: dict[tuple[str, ...], ListType] = {
    ("spec", "parts"): ListType("map", ("name",)),
    ("spec", "tags"): ListType("set"),
}
SHAPE = Shape(lambda names: LISTS.get(names, ATOMIC), frozenset({("spec", "whole")}), status_apart=True)

TEXTS = st.sampled_from("xyz")
PARTS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abc")}, optional={"use": TEXTS, "make": TEXTS}),
    unique_by=lambda part: part["name"],
    min_size=1,  # an empty list has no items, so its manager would own nothing of it
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "color": TEXTS,
        "nested": st.dictionaries(TEXTS, TEXTS),
        "parts": PARTS,
        "tags": st.lists(TEXTS, unique=True, min_size=1),
        "lines": st.lists(TEXTS),
        "whole": st.dictionaries(TEXTS, TEXTS),
    },
)
OBJECTS = st.fixed_dictionaries({}, optional={"spec": SPECS, "labels": st.dictionaries(TEXTS, TEXTS)})
