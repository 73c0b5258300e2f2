"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const picks = document.getElementById("picks");
const LINE = 18;  // pixels of a setting in a chart that has a line for each
const charts = new Map();  // by element: its view, and what is drawn in it

const MARKS = {  // in a square from -8 to 8, as Vega draws its symbols
  "circle": "M-5.5,0A5.5,5.5,0,1,1,5.5,0A5.5,5.5,0,1,1,-5.5,0Z",
  "square": "M-5,-5H5V5H-5Z",
  "triangle-up": "M0,-6L6,5H-6Z",
  "triangle-down": "M0,6L6,-5H-6Z",
  "diamond": "M0,-6.5L6.5,0L0,6.5L-6.5,0Z",
  "cross": "M-2,-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
};

function swatch(element) {
  const look = data.looks[element.dataset.look];
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", "-8 -8 16 16");
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "path");
  mark.setAttribute("d", MARKS[look.shape]);
  mark.setAttribute("fill", look.colour);
  picture.append(mark);
  element.append(picture);
}

function picked(name) {
  return new Set(Array.from(picks.querySelectorAll(`[name="${name}"]:checked`), (input) => input.value));
}

/** How charts look beside the text, in light and in dark. */
function theme() {
  const style = getComputedStyle(document.body);
  const colour = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const text = colour("--text"), faint = colour("--faint"), line = colour("--line");
  return {
    background: "transparent",
    font: style.fontFamily,
    view: { stroke: null },
    legend: { labelColor: text, labelFontSize: 12 },
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

async function embed(element, spec) {
  const { view } = await vegaEmbed(element, spec, {
    actions: false, ast: true, config: theme(), defaultStyle: false, renderer: "svg",
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
  charts.set(element, { view: await embed(element, spec), drawn });
}

async function show() {
  const controllers = picked("controller"), cells = picked("cell");
  for (const element of document.querySelectorAll("[data-cell]")) {
    element.hidden = !cells.has(element.dataset.cell) && !cells.has(element.dataset.mean);
  }
  for (const element of document.querySelectorAll("[data-controller]")) {
    element.hidden = !controllers.has(element.dataset.controller);
  }
  const cost = picks.elements.cost.value;
  const open = Array.from(document.querySelectorAll("figure:not([hidden]) [data-chart]"));
  await Promise.all(open.map((element) => draw(element, controllers, cost)));
  document.documentElement.dataset.ready = "";
}

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
    copy.datasets = { rows };
    copy.description = `${element.previousElementSibling.textContent}. The tables have its numbers.`;
    await embed(element, copy);
  }));
  document.documentElement.dataset.ready = "";
}

if (data.drawn) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
}

// --- the episode viewer -------------------------------------------------------------------------------------

const RIGHT = "#2a9d55", WRONG = "#d1495b", MINOR = "#a8a8a8", UNREVEALED = "#8884";
const OTHERS = ["#3c6fb4", "#edae49", "#8e5ea2", "#5bc0be", "#b5651d", "#e29ac4"];
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
  const others = [WRONG, ...OTHERS];
  const given = Object.values(episode.plays).map((play) => episode.answers.indexOf(play.answer));
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

  async open(depths, branches, rounds) {
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
    set(small, { rounds });
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
      entry.append(box, text);
      legend.append(entry);
    }
    legend.append(element("li", "○ finished"), element("li", "× pruned"));
    viewer.showModal();
    await this.arrange();
  }

  async arrange() {
    this.pause();
    const played = this.sides.map((side) => side.played).filter(Boolean);
    const depths = Math.max(...played.flatMap((play) => play.branches.map(([read]) => read.length)));
    const branches = Math.max(...played.map((play) => play.branches.length));
    this.slider.max = this.rounds;
    await Promise.all(this.sides.map((side) => side.open(depths, branches, this.rounds)));
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
