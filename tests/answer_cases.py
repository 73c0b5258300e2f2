r"""Texts, the answers in them, and whether those are right: hand-checked.

Each case is ``(text, extractor, gold answer, extracted answer, verdict)``. A verdict that may surprise is
explained beside it. Units, the percent sign and the case of words and single letters count for nothing, and
an equation is its right-hand side.
"""

ERR = "ERR"

LONG = "Let me think about it again. " * 3500  # 100 kB

BOXES = [
    (r"The answer is \boxed{42}.", "boxed", "42", "42", True),
    (r"The answer is \boxed{42}.", "boxed", "24", "42", False),
    (r"First \boxed{1}, then \boxed{2}, so \boxed{3}.", "boxed", "3", "3", True),
    (r"First \boxed{3}, then \boxed{2}.", "boxed", "3", "2", False),
    (r"\boxed{\frac{1}{2}}", "boxed", "0.5", r"\frac{1}{2}", True),
    (r"\boxed{\{1, 2\}}", "boxed", r"\{2, 1\}", r"\{1, 2\}", True),
    (r"\fbox{7}", "boxed", "7", "7", True),
    (r"\boxed {7}", "boxed", "7", "7", True),
    (r"\boxed 5", "boxed", "5", "5", True),
    (r"$\boxed 12$.", "boxed", "12", "12", True),
    (r"so \boxed B", "boxed", "B", "B", True),
    (r"\\boxed{5}", "boxed", "5", "5", True),  # escaped once more, as in JSON
    ("\\boxed{\n  6\n}", "boxed", "6", "6", True),
    ("\\boxed{6\n7}", "boxed", "67", "6 7", False),
    # Of nested boxes the inner one is the last that was opened.
    (r"\boxed{\boxed{5}}", "boxed", "5", "5", True),
    (r"\boxed{x = \boxed{5}}", "boxed", "5", "5", True),
    (r"\boxed{\boxed{5} + 1}", "boxed", "6", "5", False),
    # A box that is not closed, as where the token limit cut the text, holds no answer; one before it may.
    (r"\boxed{12", "boxed", "12", ERR, False),
    (r"\boxed{\frac{1}{2}", "boxed", "1/2", ERR, False),
    (r"\boxed{3} and then \boxed{4", "boxed", "3", "3", True),
    (r"\boxed{3 and then \boxed{4}", "boxed", "4", "4", True),
    (r"\boxed{a\}b", "boxed", "b", ERR, False),
    # An empty box is a quotation of the instructions.
    (r"\boxed{}", "boxed", "5", ERR, False),
    (r"I have \boxed{5} to put into \boxed{}.", "boxed", "5", "5", True),
    (r"\boxed{\boxed{}}", "boxed", "5", ERR, False),
    (r"\boxed{ }", "boxed", "5", ERR, False),
    (r"a \boxed environment", "boxed", "5", ERR, False),
    ("no box, 5", "boxed", "5", ERR, False),
    ("", "boxed", "5", ERR, False),
    ("}}}{", "boxed", "5", ERR, False),
    (r"} \boxed{5} {", "boxed", "5", "5", True),
    (r"\boxed{\text{no solution}}", "boxed", "No solution.", r"\text{no solution}", True),
    (LONG + r"\boxed{8}" + LONG, "boxed", "8", "8", True),
    (r"\boxed{" + LONG + "}", "boxed", "8", ERR, False),
    (r"\boxed{" * 14_000, "boxed", "8", ERR, False),
    (r"\boxed{" * 5_000 + "8" + "}" * 5_000, "boxed", "8", "8", True),
    (r"\boxed{" + "1" * 200 + "}", "boxed", "1" * 200, "1" * 200, True),
    (r"\boxed{" + "1" * 201 + "}", "boxed", "1" * 201, ERR, False),
]

NUMBERS = [
    ("The answer is 42.", "number", "42", "42", True),
    ("1, 2, 3", "number", "3", "3", True),
    ("It is -7.", "number", "-7", "-7", True),
    ("It is −7.", "number", "-7", "-7", True),
    ("10-7", "number", "-7", "7", False),
    ("between 3–5", "number", "5", "5", True),
    ("+5", "number", "5", "5", True),
    ("- 5", "number", "-5", "5", False),  # a bullet of a list
    ("1,234,567 people", "number", "1234567", "1234567", True),
    ("1{,}234", "number", "1234", "1234", True),
    (r"1\,234", "number", "1234", "1234", True),
    ("1,23", "number", "23", "23", True),  # two numbers
    ("1,2345", "number", "2345", "2345", True),
    ("It costs $12.", "number", "12", "12", True),
    ("It costs -$1,234.50!", "number", "-1234.5", "-1234.50", True),
    ("$-12$", "number", "-12", "-12", True),
    ("It takes 3.5 hours.", "number", "7/2", "3.5", True),
    (".5", "number", "1/2", ".5", True),
    ("3.", "number", "3", "3", True),
    ("007", "number", "7", "007", True),
    ("3/4 of them", "number", "0.75", "3/4", True),
    ("-3 / 4", "number", "-0.75", "-3/4", True),
    ("2 1/2 cups", "number", "2.5", "2 1/2", True),
    (r"$\frac{3}{4}$", "number", "0.75", "3/4", True),
    (r"$-\dfrac{3}{4}$", "number", "-0.75", "-3/4", True),
    (r"$2\frac{1}{2}$", "number", "2.5", "2 1/2", True),
    ("50%", "number", "50", "50%", True),
    (r"$12.5\%$", "number", r"12.5\%", "12.5%", True),
    ("1e5", "number", "100000", "1e5", True),
    ("1.5E-3 m", "number", "0.0015", "1.5e-3", True),
    (r"$6.02 \times 10^{23}$", "number", "6.02e23", "6.02e23", True),
    ("3 x 10^5", "number", "300000", "3e5", True),
    ("The answer is 5 for x1.", "number", "5", "5", True),  # x1 is a name
    ("H2O", "number", "2", ERR, False),
    ("答案是5。", "number", "5", "5", True),
    ("18cm", "number", "18", "18", True),
    ("no number", "number", "5", ERR, False),
    ("", "number", "5", ERR, False),
    ("7 " + LONG, "number", "7", "7", True),
    (LONG, "number", "7", ERR, False),
    ("1" * 100_000, "number", "1", ERR, False),
    ("1," * 50_000, "number", "1", "1", True),
    ("-" * 100_000, "number", "1", ERR, False),
]

CHOICES = [
    ("(B)", "choice", "B", "B", True),
    ("b", "choice", "B", "B", True),
    ("The correct option is (C).", "choice", "C", "C", True),
    ("Answer: C", "choice", "C", "C", True),
    ("Answer:\n\n**D**", "choice", "D", "D", True),
    ("**D**", "choice", "D", "D", True),
    ("The answer is A because of that.", "choice", "A", "A", True),
    ("The answer is A.", "choice", "B", "A", False),
    ("(A) 1 (B) 2 (C) 3\nAnswer: B", "choice", "B", "B", True),
    ("I think that a dog is A good pet, so it is D", "choice", "D", "D", True),
    ("I would say B", "choice", "B", "B", True),
    ("Answer: B. A train is faster than I am.", "choice", "B", "B", True),
    ("A train leaves. I wait.", "choice", "A", ERR, False),
    ("I'm on an A-level course", "choice", "A", ERR, False),
    (r"\boxed{\text{E}}", "choice", "E", "E", True),
    (r"\boxed{(F) 12}", "choice", "(F)", "F", True),
    ("答案：B", "choice", "B", "B", True),
    ("K", "choice", "K", ERR, False),
    ("", "choice", "A", ERR, False),
    (LONG + "The answer is (J)", "choice", "J", "J", True),
    ("(A " * 33_000, "choice", "A", "A", True),
]

AUTO = [
    (r"5 apples, so \boxed{6}, not 7", "auto", "6", "6", True),
    ("5 apples, not 7", "auto", "7", "7", True),
    (r"\boxed{6", "auto", "6", "6", True),  # no complete box, but a number
    ("nothing", "auto", "6", ERR, False),
    # Later numbers are explanations.
    ("The answer is 12. 7 + 5 is 12, which is the sum of 7 and 5.", "auto", "12", "12", True),
    ("Answer: 12\n\n7 and 5 are 12, as 3 and 9 are.", "auto", "12", "12", True),
    ("**Answer:** 12 apples, and 3 pears are left.", "auto", "12", "12", True),
    ("The final answer is:\n\n$$12$$", "auto", "12", "12", True),
    ("The answer is $\\frac{1}{2}$, not 2.", "auto", "0.5", r"\frac{1}{2}", True),
    (r"The answer is \(2\sqrt{3}\). It took 3 steps.", "auto", r"\sqrt{12}", r"2\sqrt{3}", True),
    ("The answer is 7 + 5 = 12. That took 2 steps.", "auto", "12", "12", True),
    ("The answer is 7 + 5.", "auto", "12", "7 + 5", False),
    ("The answer is x = 5, since 5 - 5 is 0.", "auto", "5", "5", True),
    ("The answer is -3.5 in 2 steps.", "auto", "-7/2", "-3.5", True),
    ("The answer is (2, 3).", "auto", "(2,3)", "(2, 3)", True),
    ("The answer is (2, 3), because both lines meet there.", "auto", "(2,3)", "(2, 3)", True),
    ("The answer is (2, 3).", "auto", "2", "(2, 3)", False),
    ("The answer is 2x + 3.", "auto", "3 + 2x", "2x + 3", True),
    ("The answer is x^2.", "auto", "2", "x^2", False),
    ("The answer is 2^10.", "auto", "1024", "2^10", True),
    (r"The answer is 3\sqrt{2}. I took 2 steps.", "auto", r"\sqrt{18}", r"3\sqrt{2}", True),
    ("The answer is 3 or 4.", "auto", "4, 3", "3 or 4", True),
    ("The answer is x = 5 or x = 6.", "auto", "5, 6", "x = 5 or x = 6", True),
    ("The answer is x > 1 and x < 2.", "auto", "1 < x < 2", "x > 1 and x < 2", True),
    ("The answer is 10:30.", "auto", "10:30", "10:30", True),
    ("The answer is 3,5 km.", "auto", "3.5", "3,5 km", True),
    ("The answer is 12, 5 more than 7.", "auto", "12", "12", True),
    ("The answer is 12, a number with 2 digits.", "auto", "12", "12", True),
    ("The answer is 42).", "auto", "42", "42", True),
    ("The answer is 5m, or 500 cm.", "auto", "5 m", "5", True),
    ("The answer is 1 2 3.", "auto", "1 2 3", "1 2 3", True),
    ("The answer is 1 2 3.", "auto", "1", "1 2 3", False),
    ("#### 1 234", "auto", "1234", "1 234", True),
    ("The answer is 12 7 + 5 is 12", "auto", "12", "12", True),
    ("The answer is 5. No, the answer is 6. I tried 7.", "auto", "6", "6", True),
    ("The answer is B. It has 4 legs.", "auto", "B", "B", True),
    ("Answer: (C), for 3 reasons.", "auto", "C", "(C)", True),
    ("The answer is A dog with 4 legs and 1 tail.", "auto", "4", "4", True),
    ("The answer is yes. I am 99 % sure.", "auto", "yes", "yes", True),
    ("The answer is not known to anybody yet. I guess 5.", "auto", "5", "5", True),
    ("So 7 + 5 = 12.\n#### 12\nThat took 2 steps.", "auto", "12", "12", True),
    ("#### 11\nWait: the answer is 10.\n#### 12", "auto", "12", "12", True),
    (r"The answer is 5, so \boxed{6}. #### 7", "auto", "6", "6", True),
    ("The answer is", "auto", "5", ERR, False),
    ("10 answers: 5", "auto", "5", "5", True),
]

PATTERNS = [
    ("#### 12\n#### 13", r"regex:#### (\S+)", "13", "13", True),
    ("a=1; b=2", r"regex:[0-9]", "2", "2", True),
    ("a=1; b=", r"regex:=([0-9]?)", "1", "1", True),  # a group that matched nothing does not count
    ("nothing", r"regex:[0-9]+", "1", ERR, False),
    ("a" * 5000 + "b", "regex:(?:a+)+$", "a", ERR, False),  # would run for ages
]

FUNCTIONS = [
    (" 12 ", "builtins:str", "12", "12", True),
    ("twelve", "os.path:basename", "Twelve", "twelve", True),
]


def boxed(answer, gold, verdict):
    return rf"\boxed{{{answer}}}", "auto", gold, " ".join(answer.split()), verdict


MATHEMATICS = [
    # fractions and decimals
    boxed(r"\dfrac{1}{2}", r"\frac12", True),
    boxed(r"\tfrac{2}{4}", "0.5", True),
    boxed(r"-\frac{1}{2}", r"\frac{-1}{2}", True),
    boxed(r"\frac{1}{3}", "0.333333", False),  # numbers are exact
    boxed("0.3333", r"\frac{1}{3}", False),
    boxed("1.0000001", "1", False),
    boxed("12.0", "12", True),
    boxed(r"\frac{1}{0}", "0", False),
    boxed("3:2", "3/2", True),
    boxed(r"1\frac{1}{2}", "1.5", True),
    boxed("1 1/2", "3/2", True),
    boxed("-1 1/2", "-3/2", True),
    boxed("½", "0.5", True),
    boxed("2½", "2.5", True),
    # integers
    boxed("0042", "42", True),
    boxed("+42", "42", True),
    boxed("42.", "42", True),
    boxed("-0", "0", True),
    boxed("1 000 000", "1,000,000", True),
    boxed(r"1\,000", "1000", True),
    boxed("1000000007", "1000000009", False),
    boxed("９", "9", True),  # full width
    # scientific notation and powers
    boxed("1.5e3", "1500", True),
    boxed("1e-5", "0.00001", True),
    boxed(r"1.23\times10^{-4}", "0.000123", True),
    boxed("2 × 10³", "2000", True),
    boxed("2^{10}", "1024", True),
    boxed("5!", "120", True),
    boxed(r"\binom{5}{2}", "10", True),
    boxed("-2^2", "4", False),
    # percent: 50% is 50, as the reference answer to "how many percent" is; it cannot be 0.5 as well
    boxed(r"50\%", "50%", True),
    boxed(r"50\%", "0.5", False),
    boxed("0.5", r"50\%", False),
    boxed("50", r"50\%", True),
    boxed(r"5\%", "0.5", False),
    # radicals and constants
    boxed(r"\sqrt{8}", r"2\sqrt{2}", True),
    boxed("√2", r"\sqrt2", True),
    boxed("2√(3)", r"\sqrt{12}", True),
    boxed(r"\frac{4}{\sqrt{2}}", r"2\sqrt{2}", True),
    boxed(r"\sqrt{2}", "1.41421356", False),
    boxed("1.414", r"\sqrt{2}", False),
    boxed(r"\sqrt[3]{27}", "3", True),
    boxed("2π", r"2\pi", True),
    boxed(r"16\pi", "50.265482", False),
    boxed(r"\log_2 8", "3", True),
    boxed(r"\sin(\pi/6)", "1/2", True),
    boxed(r"\infty", r"-\infty", False),
    boxed("∞", r"\infty", True),
    # formulas
    boxed("1+2x", "2x+1", True),
    boxed("x^2+2x+1", "(x+1)^2", True),
    boxed("x²-1", "(x-1)(x+1)", True),
    boxed("2y", "2x", False),
    boxed("X", "x", True),
    boxed(r"\sqrt{-1}", "i", True),
    # equations
    boxed("x=5", "5", True),
    boxed("5", "x=5", True),
    boxed("y=5", "5", True),
    boxed("y=5", "x=5", True),  # equal to the same
    boxed("x = 2 + 3 = 5", "5", True),
    # several values, sets, tuples, intervals
    boxed("2, 1", "1, 2", True),
    boxed(r"1 \text{ and } 2", "1,2", True),
    boxed("1 or 2", "2,1", True),
    boxed(r"\pm 2", "2, -2", True),
    boxed("±2", "2, -2", True),
    boxed("1, 2", "1, 2, 3", False),
    boxed("1,2", r"x=1 \text{ or } x=2", True),
    boxed(r"\{3,1,2\}", r"\{1,2,3\}", True),
    boxed(r"\left\{ 1, 2 \right\}", r"\{1,2\}", True),
    boxed(r"\{1\}", r"\{1,2\}", False),
    boxed(r"\emptyset", r"\{\}", True),
    boxed("(1,2)", r"\left( 1, 2 \right)", True),
    boxed("(2,1)", "(1,2)", False),
    boxed(r"\left(\frac{1}{2}, 3\right)", "(0.5, 3)", True),
    boxed("(1, 2, 3)", "(1, 2, 4)", False),
    boxed("(1,2)", "x=1, y=2", True),
    boxed("[0, 1)", "[0,1)", True),
    boxed("(0,1)", "[0,1)", False),
    boxed(r"(5,\infty)", "x > 5", True),
    boxed("0<x<1", "(0,1)", True),
    boxed("(0,1)", "0<x<1", True),
    boxed(r"(-\infty,0)\cup(1,\infty)", r"(1,\infty)\cup(-\infty,0)", True),
    boxed("(-∞, 0) ∪ (1, ∞)", r"(-\infty,0)\cup(1,\infty)", True),
    boxed(r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}", True),
    boxed(r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}", False),
    # units
    boxed(r"5\text{ cm}", "5", True),
    boxed("5 cm", r"5\text{ cm}", True),
    boxed("5 m", "5 cm", True),
    boxed(r"5\text{ m}^2", "5", True),
    boxed("5 m^2", "5", True),
    boxed("60 km/h", "60", True),
    boxed(r"60\text{ km/h}", "60", True),
    boxed("5 apples", "5", True),
    boxed("30°", r"30^\circ", True),
    boxed(r"30^{\circ}", "30", True),
    boxed("30 degrees", "30", True),
    boxed(r"\$12.00", "12", True),
    boxed("€12", "12", True),
    boxed("10:30", "10:30", True),
    # LaTeX around the answer
    boxed(r"$\frac{1}{2}$", "0.5", True),
    boxed(r"\(5\)", "5", True),
    boxed(r"\text{12}", "12", True),
    boxed(r"\mathbf{12}", "12", True),
    boxed(r"5 \\", "5", True),
    boxed(r"\,5\,", "5", True),
    # words and letters
    boxed(r"\text{(B)}", "B", True),
    boxed("C", "B", False),
    boxed(r"\textbf{Monday}", "monday", True),
    boxed("listen", "silent", False),  # no products of the same letters
    boxed(r"\text{yes}", "Yes", True),
    boxed("no", "yes", False),
    boxed("True", r"\text{true}", True),
    boxed("five", "5", False),
    boxed("C, A", "A, C", True),
    boxed("Zürich", "zürich", True),
    boxed("北京", "北京", True),
    boxed("北京", "南京", False),
    boxed("4*(2+", "8", False),
    boxed("4*(2+", "4*(2+", True),  # no mathematics, but spelled alike
    boxed("ERR", "ERR", False),
    boxed("5", "ERR", False),
]

ENDLESS = [
    boxed("9^{9^{9^9}}", "9", False),
    boxed("9^{9^{9^9}}", "9^{9^{9^9}}", True),
    boxed("(10^{10})!", "7", False),
    boxed("((9!)!)!", "7", False),
    boxed(r"\prod_{k=1}^{1000000000} k", "7", False),
    boxed(r"\sum_{k=1}^{1000000000} \frac{1}{k}", "7", False),
    boxed(r"2^{2^{100}} \mod 7", "2", False),  # it is 2, but nobody would wait for it
    boxed(r"\binom{10^9}{5\cdot 10^8}", "7", False),
    boxed("(" * 40 + "1" + ")" * 40, "1", True),
    boxed("(" * 40 + "x" + ")" * 40, "x", True),
    boxed("+".join("x" * 90), "90x", True),
    (r"\boxed{" + "+".join("x" * 5000) + "}", "auto", "5000x", ERR, False),
]

CASES = [
    *BOXES,
    *NUMBERS,
    *CHOICES,
    *AUTO,
    *PATTERNS,
    *FUNCTIONS,
    *MATHEMATICS,
    *ENDLESS,
]
