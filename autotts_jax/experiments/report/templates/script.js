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
  const { view } = await vegaEmbed(element, spec, {
    actions: false, ast: true, config: theme(), defaultStyle: false, renderer: "svg",
    tooltip: { disableDefaultStyle: true },
  });
  charts.set(element, { view, drawn });
}

async function show() {
  const controllers = picked("controller"), cells = picked("cell");
  for (const element of document.querySelectorAll("[data-cell]")) {
    element.hidden = !cells.has(element.dataset.cell);
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
