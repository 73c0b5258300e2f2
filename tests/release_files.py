"""Questions as the released JSON files hold them."""

from hypothesis import strategies as st


def question(text, *branches, gold="7", interval=500):
    return {
        "question": text,
        "final_answers_trace": [final for _, _, final in branches],
        "each_branch": [list(branch) for branch in branches],
        "gold_answer": gold,
        "probe_freq": interval,
    }


ITEMS = [
    question("How many?", [["1", "7"], 900, "7"], [["ERR"], 700, "1"]),
    question("Which?", [["2"], 400, "2"], [["3", "2", "2"], 1400, "4"], gold="9"),
]
TEXTS = st.text(max_size=4)


@st.composite
def cells(draw):
    """Questions of one cell."""
    branches, interval = draw(st.integers(1, 3)), draw(st.integers(1, 1000))
    branch = st.tuples(st.lists(TEXTS, min_size=1, max_size=5), st.integers(1, 2**26), TEXTS)
    texts = draw(st.lists(TEXTS, min_size=1, max_size=3, unique=True))
    return [
        question(
            text,
            *draw(st.lists(branch, min_size=branches, max_size=branches)),
            gold=draw(TEXTS.filter(str.strip)),
            interval=interval,
        )
        for text in texts
    ]


def change(*place, to):
    def apply(items):
        for key in place[:-1]:
            items = items[key]
        items[place[-1]] = to

    return apply
