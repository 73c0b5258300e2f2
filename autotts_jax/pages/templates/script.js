"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const picks = document.getElementById("picks");
const LINE = 18;  // pixels of a setting in a chart that has a line for each
const charts = new Map();  // by element: its view, and what is drawn in it

function swatch(element) {
  const style = data.styles[element.dataset.look];
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", "-1.3 -1.3 2.6 2.6");
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "path");
  mark.setAttribute("d", style.shape);
  mark.setAttribute("fill", style.colour);
  picture.append(mark);
  element.append(picture);
}

function picked(name) {
  return new Set(Array.from(picks.querySelectorAll(`[name="${name}"]:checked`), (input) => input.value));
}

/** The colours of the text beside which charts stand, in light and in dark. */
function inks() {
  const colour = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  return { text: colour("--text"), faint: colour("--faint"), line: colour("--line"), ground: "transparent" };
}

const PAPER = { text: "#000000", faint: "#333333", line: "#d8dee4", ground: "white" };

function theme({ text, faint, line, ground }) {
  return {
    background: ground,
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    legend: { labelColor: text, titleColor: text, labelFontSize: 12 },
    axis: {
      labelColor: faint, titleColor: text, gridColor: line, domainColor: line, tickColor: line,
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", gridOpacity: 0.6, titlePadding: 8,
    },
  };
}

function rowsOf(cell, controllers, chart) {
  return data.rows.filter((row) =>
    row.cell === cell && controllers.has(row.controller) && (chart === "frontier" || row.setting !== data.first));
}

async function embed(element, spec, colours = inks()) {
  const { view } = await vegaEmbed(element, spec, {
    actions: false, ast: true, config: theme(colours), defaultStyle: false, renderer: "svg",
    tooltip: { disableDefaultStyle: true },
  });
  return view;
}

async function draw(element, controllers, cost) {
  const { cell, benchmark } = element.closest("figure").dataset;
  const kind = element.dataset.chart;
  const rows = rowsOf(cell, controllers, kind);
  const drawn = kind === "frontier" ? cost : kind;
  const known = charts.get(element);
  if (known && known.drawn === drawn && kind === "frontier") {
    known.spec.datasets = { rows };
    await known.view.data("rows", rows).runAsync();
    return;
  }
  if (known) known.view.finalize();
  const spec = structuredClone(kind === "frontier" ? data.charts.frontier[benchmark][cost] : data.charts[kind]);
  spec.datasets = { rows };
  if (kind === "gains") spec.height = LINE * rows.length;
  spec.description = element.previousElementSibling.textContent +
    (kind === "frontier" ? ": accuracy against cost" : ": differences in accuracy") +
    " of each setting. The tables have the same numbers.";
  charts.set(element, { view: await embed(element, spec), drawn, spec });
}

async function show() {
  const controllers = picked("controller"), cells = picked("cell");
  for (const element of document.querySelectorAll("[data-cell]")) {
    element.hidden = !cells.has(element.dataset.cell) && !cells.has(element.dataset.mean);
  }
  for (const element of document.querySelectorAll("[data-controller]")) {
    element.hidden = !controllers.has(element.dataset.controller);
  }
  for (const element of document.querySelectorAll(".nothing")) element.hidden = controllers.size > 0 && cells.size > 0;
  if (questions) questions.show();
  const cost = picks.elements.cost.value;
  const open = Array.from(document.querySelectorAll("figure:not([hidden]) [data-chart]"));
  await Promise.all(open.map((element) => draw(element, controllers, cost)));
  document.documentElement.dataset.ready = "";
}

// --- downloads ----------------------------------------------------------------------------------------------

function button(text, label, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

function download(name, ending, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${name.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 80)}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Names the controllers of a chart, whose legend the page has, in the chart itself. */
function named(part, shown) {
  for (const [key, inner] of Object.entries(part)) {
    if (!inner || typeof inner !== "object") continue;
    if (["color", "shape", "strokeDash"].includes(key) && inner.field === "controller") {
      const { domain, range } = inner.scale;
      const kept = domain.map((_, place) => place).filter((place) => shown.has(domain[place]));
      inner.scale = { domain: kept.map((place) => domain[place]), range: kept.map((place) => range[place]) };
      inner.legend = { orient: "bottom", columns: 3, title: null };
    } else named(inner, shown);
  }
}

/** Draws a chart once more, in black on white and of a size that does not depend on the window. */
async function drawing(element) {
  const spec = structuredClone(charts.get(element).spec);
  spec.width = 480;
  if (element.dataset.chart === "frontier") named(spec, new Set(spec.datasets.rows.map((row) => row.controller)));
  return embed(document.createElement("div"), spec, PAPER);
}

for (const element of document.querySelectorAll("figure .chart")) {
  const caption = element.previousElementSibling.textContent;
  const name = `${element.dataset.chart || ""} ${caption}`.trim();
  const tools = document.createElement("p");
  tools.className = "bar tools";
  tools.append(
    "Download",
    button("SVG", `Download ${name} as SVG`, async () => {
      const view = await drawing(element);
      download(name, "svg", new Blob([await view.toSVG()], { type: "image/svg+xml" }));
      view.finalize();
    }),
    button("PNG", `Download ${name} as PNG`, async () => {
      const view = await drawing(element);
      (await view.toCanvas(3)).toBlob((blob) => download(name, "png", blob));
      view.finalize();
    }));
  element.after(tools);
}

// --- tables -------------------------------------------------------------------------------------------------

const LATEX = {
  "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}",
  "±": "$\\pm$", "Δ": "$\\Delta$", "γ": "$\\gamma$", "β": "$\\beta$", "≤": "$\\le$", "≥": "$\\ge$", "≶": "$\\stackrel{<}{>}$", "∞": "$\\infty$", "–": "--", "−": "$-$", "·": "$\\cdot$", "…": "\\dots{}",
};
const FIRST = 20;  // questions that are shown until all are asked for

function latex(text) {
  return text.replace(/[\\~^<>±Δγβ≤≥≶∞–−·…]|[&%$#_{}]/g, (found) => LATEX[found] || `\\${found}`);
}

function quote(text) {
  const safe = /^([=@\t\r]|[+-](?!\d))/.test(text) ? `'${text}` : text;  // which a spreadsheet would run
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The text of a cell, without that of its buttons and arrows. */
function textOf(cell) {
  const copy = cell.cloneNode(true);
  copy.querySelectorAll("[data-episode]").forEach((inner) => inner.remove());
  return copy.textContent.trim();
}

/** What a cell is sorted by: its number if it begins with one, otherwise its text. */
function keyOf(cell) {
  const text = textOf(cell);
  const found = /^[≤≥≶]?\s*([+\-−]?[\d.]+)/.exec(text.replaceAll(",", ""));
  return found ? Number(found[1].replace("−", "-")) : text === "–" ? Infinity : text;
}

class Sheet {
  constructor(table) {
    this.table = table;
    this.body = table.tBodies[0];
    for (const heading of table.tHead.rows[0].cells) {
      const sort = document.createElement("button");
      sort.type = "button";
      sort.className = "sort";
      sort.append(...heading.childNodes);
      heading.append(sort);
      sort.addEventListener("click", () => this.sort(heading));
    }
    const name = table.dataset.name;
    const tools = document.createElement("p");
    tools.className = "bar tools";
    tools.append(
      "Download",
      button("CSV", `Download ${name} as CSV`, () => download(name, "csv", new Blob([this.csv()], { type: "text/csv" }))),
      button("LaTeX", `Download ${name} as LaTeX`, () => download(name, "tex", new Blob([this.tex()], { type: "text/x-tex" }))));
    table.parentElement.after(tools);
    tools.hidden = table.parentElement.hidden;
    if (table.parentElement.dataset.cell) tools.dataset.cell = table.parentElement.dataset.cell;
  }

  sort(heading) {
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of this.table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = Array.from(this.body.rows, (row) => [keyOf(row.cells[heading.cellIndex]), row]);
    keyed.sort(([one], [other]) => {
      const order = typeof one === "number" && typeof other === "number"
        ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
      return down ? -order : order;
    });
    this.body.append(...keyed.map(([, row]) => row));
    this.show();
  }

  show() {}

  /** The texts that the table shows, the headings first. */
  lines() {
    const rows = [this.table.tHead.rows[0], ...this.body.rows].filter((row) => !row.hidden && !row.classList.contains("out"));
    return rows.map((row) => Array.from(row.cells).filter((cell) => !cell.hidden).map(textOf));
  }

  csv() { return this.lines().map((line) => line.map(quote).join(",") + "\r\n").join(""); }

  tex() {
    const [head, ...lines] = this.lines().map((line) => line.map(latex).join(" & ") + " \\\\");
    const columns = `l${"r".repeat(this.lines()[0].length - 1)}`;
    return [`\\begin{tabular}{${columns}}`, "\\toprule", head, "\\midrule", ...lines, "\\bottomrule", "\\end{tabular}", ""].join("\n");
  }
}

/** The table of questions, of which the first are shown, and which can be searched. */
class Questions extends Sheet {
  constructor(table) {
    super(table);
    this.search = document.getElementById("search");
    this.all = document.getElementById("all");
    this.most = FIRST;
    this.search.addEventListener("input", () => this.show());
    this.all.addEventListener("click", () => { this.most = Infinity; this.show(); });
  }

  show() {
    if (!this.search) return;
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const row of this.body.rows) {
      const text = row.textContent.toLowerCase();
      row.classList.toggle("out", !words.every((word) => text.includes(word)));
      if (!row.hidden && !row.classList.contains("out")) found += 1;
      row.classList.toggle("more", found > this.most);
    }
    document.getElementById("matches").textContent =
      found > this.most ? `${this.most} of ${found} questions` : `${found} ${found === 1 ? "question" : "questions"}`;
    this.all.hidden = found <= this.most;
  }
}

let questions = null;
for (const table of document.querySelectorAll("main table[data-name]")) {
  if (table.id === "by-question") questions = new Questions(table);
  else new Sheet(table);
}

// --- what is shown ------------------------------------------------------------------------------------------

if (picks) {
  document.querySelectorAll("[data-look]").forEach(swatch);
  if (matchMedia("(max-width: 59.9rem)").matches) document.querySelector(".picks").open = false;
  picks.addEventListener("change", show);
  picks.addEventListener("submit", (event) => event.preventDefault());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    charts.forEach(({ view }) => view.finalize());
    charts.clear();
    show();
  });
  show();
}

async function drawAll() {
  await Promise.all(Array.from(document.querySelectorAll("[data-drawn]"), async (element) => {
    const { spec, rows } = data.drawn[Number(element.dataset.drawn)];
    const copy = structuredClone(spec);
    copy.datasets = { ...copy.datasets, rows };
    copy.description = `${element.previousElementSibling.textContent}. The tables have its numbers.`;
    charts.set(element, { view: await embed(element, copy), spec: copy });
  }));
  document.documentElement.dataset.ready = "";
}

if (data.drawn) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
}

// --- the episode viewer -------------------------------------------------------------------------------------

const { right: RIGHT, wrong: WRONG, minor: MINOR, unrevealed: UNREVEALED, others: OTHERS, signs: SIGNS } = data.answers || {};
const MARK = { finished: "circle", pruned: "M-1,-1L1,1M1,-1L-1,1" };
const TICK = 250;  // milliseconds of a round while it plays

const viewer = document.getElementById("viewer");

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

/** The colour of each answer of an episode: the right one, those given, then the most common ones. */
function colours(episode) {
  const found = new Map();
  const right = episode.answers.indexOf(episode.gold);
  if (right >= 0) found.set(right, RIGHT);
  const given = Object.values(episode.plays).map((play) => episode.answers.indexOf(play.answer));
  const wrong = given.find((answer) => answer >= 0 && answer !== right);
  if (wrong !== undefined) found.set(wrong, WRONG);
  const others = [...OTHERS];
  for (const answer of [...given, ...episode.answers.keys()]) {
    if (answer >= 0 && !found.has(answer) && others.length) found.set(answer, others.shift());
  }
  return found;
}

function short(text) {
  return text.length > 24 ? `${text.slice(0, 23)}…` : text;
}

class Side {
  constructor(part, episode, colour) {
    Object.assign(this, { part, episode, colour });
    this.select = part.querySelector("select");
    this.views = [];
  }

  get played() { return this.episode.plays[this.select.value]; }
  get rounds() { return this.played ? this.played.tokens.length - 1 : 0; }

  async open(depths, branches, rounds, most) {
    this.views.forEach((view) => view.finalize());
    this.views = [];
    const [picture, votes] = this.part.querySelectorAll(".chart");
    picture.replaceChildren();
    votes.replaceChildren();
    this.part.querySelector(".outcome").textContent = this.played ? this.outcome() : "";
    if (!this.played) return;
    const [large, small] = ["episode", "votes"].map((name) => structuredClone(data.charts[name]));
    large.datasets = { rows: [], marks: [] };
    large.height = Math.max(90, Math.min(420, 12 * branches));
    large.description = "The branches of the episode: rows in opening order, depth from left to right, coloured by answer.";
    set(large, { depths, branches });
    small.datasets = { rows: this.history(), now: [] };
    small.description = "Votes for the most common answers, round by round.";
    set(small, { rounds, most });
    this.views = await Promise.all([embed(picture, large), embed(votes, small)]);
  }

  outcome() {
    const { answer, correct, stop, tokens, setting } = this.played;
    const given = answer === null ? "no answer" : short(answer);
    return `${setting} answers ${given}, ${correct ? "right" : "wrong"}: ${stop}, round ${this.rounds}, ` +
      `${tokens.at(-1).toLocaleString("en")} tokens`;
  }

  /** What a branch shows after a round: how deep it is, its latest answer, how it stands. */
  state(number, round) {
    const [read, seen, pruned] = this.played.branches[number];
    const depth = read.filter((at) => at <= round).length;
    const reveals = seen || read;
    let answer = -1;
    for (let at = 0; at < depth; at++) {
      if (reveals[at] >= 0 && reveals[at] <= round) answer = this.episode.shown[number][at];
    }
    const gone = pruned >= 0 && pruned <= round;
    return { depth, answer, gone, finished: depth === this.episode.ends[number] };
  }

  /** Branches by their answers after a round: of finished ones, and the latest of the others. */
  tally(round) {
    const found = new Map();
    this.played.branches.forEach((_, number) => {
      const { depth, answer, gone, finished } = this.state(number, round);
      if (!depth || gone || answer < 0) return;
      const votes = found.get(answer) || { finished: 0, latest: 0 };
      votes[finished ? "finished" : "latest"] += 1;
      found.set(answer, votes);
    });
    const all = (votes) => votes.finished + votes.latest;
    return [...found].sort((a, b) => b[1].finished - a[1].finished || all(b[1]) - all(a[1]));
  }

  history() {
    const rows = [];
    for (let round = 0; round <= this.rounds; round++) {
      const tally = new Map(this.tally(round));
      for (const [answer, colour] of this.colour) {
        const votes = tally.get(answer);
        rows.push({ round, colour, answer: this.episode.answers[answer], votes: votes ? votes.finished + votes.latest : 0 });
      }
    }
    return rows;
  }

  async show(round) {
    const body = this.part.querySelector("tbody");
    body.replaceChildren();
    if (!this.played) {
      this.part.querySelector(".doing").textContent = "";
      return;
    }
    const at = Math.min(round, this.rounds);
    this.part.querySelector(".doing").textContent = this.doing(at, round > this.rounds);
    for (const [answer, votes] of this.tally(at).slice(0, 6)) {
      const row = document.createElement("tr");
      const name = element("th", short(this.episode.answers[answer]));
      name.scope = "row";
      row.append(name, element("td", votes.finished), element("td", votes.latest));
      body.append(row);
    }
    const rows = [], marks = [];
    this.played.branches.forEach(([read, seen, pruned], number) => {
      const reveals = seen || read;
      read.forEach((when, place) => {
        if (when > at) return;
        const known = reveals[place] >= 0 && reveals[place] <= at;
        const answer = this.episode.shown[number][place];
        rows.push({
          x: place + 0.5, x2: place + 1.5, y: number, y2: number + 1, branch: number, depth: place + 1, round: when,
          answer: !known ? "not revealed" : answer < 0 ? "none" : this.episode.answers[answer],
          colour: !known ? UNREVEALED : this.colour.get(answer) || MINOR,
          sign: known && SIGNS[this.colour.get(answer)] || "",
        });
      });
      const { depth, gone, finished } = this.state(number, at);
      if (gone || finished) {
        marks.push({ x: depth + 0.9, y: number + 0.5, shape: gone ? MARK.pruned : MARK.finished });
      }
    });
    const [picture, votes] = this.views;
    picture.data("rows", rows).data("marks", marks);
    votes.data("now", [{ round: at }]);
    await Promise.all([picture.runAsync(), votes.runAsync()]);
  }

  doing(round, over) {
    const { tokens, branches, stop } = this.played;
    const count = { opened: 0, read: 0, pruned: 0 };
    for (const [read, , pruned] of branches) {
      if (read[0] === round) count.opened += 1;
      else if (read.includes(round)) count.read += 1;
      if (pruned === round) count.pruned += 1;
    }
    const done = Object.entries(count).filter(([, number]) => number).map(([what, number]) => `${what} ${number}`);
    const end = round === this.rounds ? `; stopped: ${stop}` : "";
    return `Round ${round}${over ? " (the last)" : ""}: ${done.join(", ") || "nothing new"}${end}; ` +
      `${tokens[round].toLocaleString("en")} tokens`;
  }
}

function set(spec, values) {
  for (const param of spec.params) if (param.name in values) param.value = values[param.name];
}

/** Two controllers that differ in an episode: in being right, or else in their answers, or else in their tokens. */
function differing(episode) {
  const names = Object.keys(episode.plays);
  for (const of of [(play) => play.correct, (play) => play.answer, (play) => play.tokens.at(-1)]) {
    for (const [place, one] of names.entries()) {
      const other = names.slice(place + 1).find((name) => of(episode.plays[name]) !== of(episode.plays[one]));
      if (other) return [one, other];
    }
  }
  return names.slice(0, 2);
}

class Viewer {
  constructor() {
    this.slider = document.getElementById("round");
    this.timer = null;
    const on = (id, act) => document.getElementById(id).addEventListener("click", act);
    on("first", () => this.go(0));
    on("back", () => this.go(this.round - 1));
    on("on", () => this.go(this.round + 1));
    on("last", () => this.go(this.rounds));
    on("play", () => this.toggle());
    on("close", () => viewer.close());
    this.slider.addEventListener("input", () => this.go(this.slider.valueAsNumber));
    viewer.addEventListener("close", () => this.pause());
    viewer.addEventListener("keydown", (event) => this.key(event));
    for (const select of viewer.querySelectorAll("select")) select.addEventListener("change", () => this.arrange());
  }

  get round() { return this.slider.valueAsNumber; }
  get rounds() { return Math.max(...this.sides.map((side) => side.rounds)); }

  async open(number) {
    const episode = data.episodes[number];
    const colour = colours(episode);
    this.sides = Array.from(viewer.querySelectorAll(".side"), (part) => new Side(part, episode, colour));
    document.getElementById("viewer-title").textContent =
      `${episode.cell}, question ${episode.question}, seed ${episode.seed}`;
    document.getElementById("viewer-question").textContent = `${episode.text} Right: ${episode.gold}.`;
    const legend = document.getElementById("legend");
    legend.replaceChildren();
    const entries = [...colour].map(([answer, found]) =>
      [short(episode.answers[answer]) + (episode.answers[answer] === episode.gold ? " (right)" : ""), found]);
    if (episode.answers.length > colour.size) entries.push([`${episode.answers.length - colour.size} other answers`, MINOR]);
    for (const [text, found] of [...entries, ["not revealed", UNREVEALED]]) {
      const entry = element("li", "");
      const box = element("span", "");
      box.style.background = found;
      box.textContent = SIGNS[found] || "";
      entry.append(box, text);
      legend.append(entry);
    }
    legend.append(element("li", "○ finished"), element("li", "× pruned"));
    differing(episode).forEach((name, side) => { this.sides[side].select.value = name; });
    viewer.showModal();
    await this.arrange();
  }

  async arrange() {
    this.pause();
    const played = this.sides.map((side) => side.played).filter(Boolean);
    const depths = Math.max(...played.flatMap((play) => play.branches.map(([read]) => read.length)));
    const branches = Math.max(...played.map((play) => play.branches.length));
    const most = Math.max(1, ...this.sides.filter((side) => side.played).flatMap((side) => side.history().map((row) => row.votes)));
    this.slider.max = this.rounds;
    await Promise.all(this.sides.map((side) => side.open(depths, branches, this.rounds, most)));
    await this.go(this.rounds);
  }

  async go(round) {
    this.slider.value = Math.max(0, Math.min(this.rounds, round));
    document.getElementById("now").textContent = `${this.round} / ${this.rounds}`;
    await Promise.all(this.sides.map((side) => side.show(this.round)));
  }

  toggle() {
    if (this.timer) return this.pause();
    if (this.round >= this.rounds) this.go(0);
    document.getElementById("play").textContent = "Pause";
    this.timer = setInterval(() => this.round < this.rounds ? this.go(this.round + 1) : this.pause(), TICK);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    document.getElementById("play").textContent = "Play";
  }

  key(event) {
    if (event.target.matches("select") || (event.key === " " && event.target.matches("button"))) return;
    const act = {
      ArrowLeft: () => this.go(this.round - 1), ArrowRight: () => this.go(this.round + 1),
      Home: () => this.go(0), End: () => this.go(this.rounds),
      " ": () => this.toggle(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

if (viewer) {
  const shown = new Viewer();
  for (const button of document.querySelectorAll("[data-episode]")) {
    button.addEventListener("click", () => shown.open(Number(button.dataset.episode)));
  }
}
