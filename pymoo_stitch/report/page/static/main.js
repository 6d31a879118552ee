// What the page shows at the moment, and what changes it.

const state = {
  split: null,
  pinned: [],
  hovered: null,
  filter: NO_FILTER,
  sort: { column: "cost", descends: false },
  page: 0,
  zoom: false,
  everything: false,
  unit: "evaluations",
  open: { parts: false, reliability: false, export: true },
};

function hover(id) {
  if (state.hovered === id) return;
  state.hovered = id;
  drawMarks();
  for (const row of document.querySelectorAll("#table tbody tr"))
    row.classList.toggle("hovered", row.dataset.id === id);
}

function drawHeader() {
  const { name, metric, versions, classes } = data.problem,
    evaluations = data.runs.reduce((sum, run) => sum + run.evaluations.key.length, 0);
  const title = `${name}: ${plural(evaluations, "evaluation")} by ${data.algorithms.join(" and ")}`;
  document.title = title;
  byId("title").textContent = title;
  const images = data.images
    ? Object.entries(data.images)
        .map(([split, count]) => `${whole(count)} ${split}`)
        .join(", ")
    : "";
  byId("summary").textContent = [
    plural(data.runs.length, "run"),
    `metric: ${metric.replaceAll("_", " ")}`,
    images && `images: ${images}`,
  ]
    .filter(Boolean)
    .join(" · ");
  byId("advice").textContent = data.words?.find((line) => line.startsWith("Recommended")) ?? "";
  const said = data.words?.filter((line) => !line.startsWith("Recommended")) ?? [];
  const named = classes
    ? [`Classes: ${classes.slice(0, 20).join(", ")}${classes.length > 20 ? `, … (${classes.length})` : ""}.`]
    : [];
  const made = `Made with ${Object.entries(versions)
    .map(([library, version]) => `${library} ${version}`)
    .join(", ")}.`;
  byId("about").textContent = [...said, ...named, made].join(" ");
}

function drawSplits() {
  refill(
    byId("splits"),
    ...choice(
      "split",
      data.splits.map((split) => [split, split]),
      state.split,
      (split) => {
        state.split = split;
        drawFilters();
        drawFront();
        drawPins();
        drawTable();
      },
    ),
  );
  byId("splits").hidden = data.splits.length < 2;
}

function drawLegend() {
  const has = (kind) => data.networks.some((network) => network.kind === kind);
  const mark = (...shapes) => shape("svg", { width: 30, height: 14, "aria-hidden": "true" }, shapes);
  const ink = { stroke: "var(--ink)", fill: "none" };
  const entries = data.algorithms.map((name, number) => [swatch(number), `${name}, its front`]);
  entries.push([
    mark(
      ...[6, 15, 24].map((x) =>
        shape("rect", { x, y: 6, width: 3, height: 3, fill: "var(--muted)", "fill-opacity": 0.6 }),
      ),
    ),
    "evaluated",
  ]);
  if (has("cascade"))
    entries.push([
      mark(
        shape("line", { x1: 1, x2: 29, y1: 7, y2: 7, ...ink, "stroke-dasharray": "1.5 2.5" }),
        shape("circle", { cx: 15, cy: 7, r: 3, fill: "var(--ink)" }),
      ),
      "plain cascades",
    ]);
  if (has("reference")) {
    entries.push([mark(shape("path", { d: "M10,2L20,12M10,12L20,2", ...ink, "stroke-width": 2.4 })), "references"]);
    entries.push([
      mark(shape("rect", { x: 2, y: 1, width: 26, height: 12, fill: "var(--shade)", "fill-opacity": 0.25 })),
      "dominates a reference",
    ]);
  }
  if (data.networks.some((network) => network.member?.on[data.searched]?.interval)) {
    entries.push([
      mark(shape("line", { x1: 15, x2: 15, y1: 0, y2: 14, ...ink, "stroke-opacity": 0.6 })),
      "95 % interval",
    ]);
  }
  byId("legend").replaceChildren(...entries.map(([svg, text]) => element("span", {}, svg, text)));
}

function drawAll() {
  drawHeader();
  drawSplits();
  if (!byId("filters").contains(document.activeElement)) drawFilters(); // in which somebody may be typing
  drawFront();
  drawLegend();
  drawPins();
  drawTable();
  drawCurves();
  drawRuns();
}

/** Show a document. What was chosen, pinned and filtered before stays so. */
function show(source) {
  load(source);
  if (!data.splits.includes(state.split)) state.split = data.deciding ?? data.searched;
  document.querySelector("main").hidden = false;
  drawAll();
}

function begin() {
  const source = JSON.parse(byId("document").textContent);
  if (source.runs?.length) {
    show(source);
    const recommended = data.networks.find((network) => network.member?.recommended);
    if (recommended) togglePin(recommended.id);
  }
  listenToFront();
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !state.pinned.length) return;
    state.pinned = [];
    drawPins();
    drawMarks();
    drawTable();
  });
  const redraw = () => {
    if (data) {
      drawFront();
      drawCurves();
      drawPins();
    }
  };
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) {
      width = window.innerWidth;
      redraw();
    }
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const print = (on) => () => {
    document.documentElement.toggleAttribute("data-print", on);
    redraw();
  };
  window.addEventListener("beforeprint", print(true));
  window.addEventListener("afterprint", print(false));
  if (source.live) follow(source);
}

begin();
