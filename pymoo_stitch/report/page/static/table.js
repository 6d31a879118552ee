// The table of the same networks: filtered, sorted, by pages; and what is left of them as a file.

const ROWS = 25;
const NO_LIMITS = { min: null, max: null };
const NO_FILTER = {
  what: "chosen",
  text: "",
  algorithm: "",
  seed: "",
  cost: NO_LIMITS,
  metric: NO_LIMITS,
  stitches: NO_LIMITS,
};

/** Columns: a title, the value to sort by, and the text to show (as a rule the value's own). */
function columns() {
  const { metric, more_is_better } = data.problem;
  const cost = (network) => (on(network, state.split) ?? on(network, data.searched))?.cost ?? null;
  const first = (network) => network.found[0]?.evaluation ?? null;
  return [
    { id: "name", title: "network", isText: true, value: (network) => network.name },
    { id: "kind", title: "what", isText: true, value: kindText },
    { id: "cost", title: "cost", value: cost, text: (_, value) => costText(value) },
    { id: "multiply_adds", title: "multiply-adds", value: cost, text: (_, value) => whole(value) },
    ...data.splits.map((split) => ({
      id: split,
      title: `${metric}, ${split}`,
      descends: more_is_better,
      value: (network) => {
        const at = on(network, split);
        return at ? metricOf(at.error) : null;
      },
      text: (network, value) => valueText(network, split, value),
    })),
    { id: "stitches", title: "stitches", value: (network) => network.stitches },
    { id: "found", title: "found by", isText: true, value: finderNames },
    {
      id: "seed",
      title: "seed",
      value: (network) => seedsOf(network)[0] ?? null,
      text: (network) => seedsOf(network).join(", "),
    },
    { id: "evaluation", title: "evaluation", value: first, text: (_, value) => whole(value) },
  ];
}

function valueText(network, split, value) {
  const [, low, high] = (split === state.split && on(network, split).metrics?.[data.problem.metric]) || [];
  if (network.excluded) return `about ${fixed(value)}`; // an estimate, of some of the images
  return fixed(value) + (low === undefined ? "" : ` (${fixed(low, 3)}–${fixed(high, 3)})`);
}

const matches = (network) => (state.filter.what === "all" || stands(network)) && fits(network);

/** Whether a network is within the limits that were set. */
function fits(network) {
  const { text, algorithm, seed, cost, metric, stitches } = state.filter;
  const at = on(network, state.split) ?? on(network, data.searched);
  const within = (value, { min, max }) =>
    (min === null && max === null) ||
    (value !== null && value !== undefined && (min === null || value >= min) && (max === null || value <= max));
  if (text && !`${network.name} ${network.key}`.toLowerCase().includes(text.toLowerCase())) return false;
  const isOf = (run) => (!algorithm || run.algorithm === algorithm) && (!seed || run.seed === Number(seed));
  if ((algorithm || seed) && !network.found.some(({ run }) => isOf(data.runs[run]))) return false;
  return (
    within(at && percentOf(at.cost), cost) &&
    within(at && metricOf(at.error), metric) &&
    within(network.stitches, stitches)
  );
}

/** Whether it is a reference, a cascade, or on a front. */
const stands = (network) => network.kind !== "evaluated" || data.onFront.has(network);

function kindText(network) {
  if (network.kind === "reference") return "reference";
  if (network.kind === "cascade") return network.stitches ? "stitched cascade" : "plain cascade";
  if (network.excluded) return "stopped early";
  return stands(network) ? "front" : "evaluated";
}

function selection() {
  const { column, descends } = state.sort,
    { value } = columns().find(({ id }) => id === column) ?? columns()[2];
  const rows = data.networks.filter(matches).map((network) => [value(network), network]);
  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
  const isMissing = (key) => key === null || key === "";
  rows.sort(([a], [b]) => isMissing(a) - isMissing(b) || (isMissing(a) ? 0 : compare(a, b) * (descends ? -1 : 1)));
  return rows.map(([, network]) => network);
}

function drawTable() {
  const rows = selection(),
    pages = Math.max(1, Math.ceil(rows.length / ROWS));
  state.page = Math.min(state.page, pages - 1);
  const shown = rows.slice(state.page * ROWS, (state.page + 1) * ROWS);
  byId("count").textContent = `${whole(rows.length)} of ${plural(data.networks.length, "network")}`;
  refill(
    byId("table"),
    element(
      "table",
      { "aria-labelledby": "table-heading" },
      element("thead", {}, element("tr", {}, columns().map(headCell))),
      element("tbody", {}, shown.map(tableRow)),
    ),
  );
  const turn = (by) => () => {
    state.page += by;
    drawTable();
  };
  refill(
    byId("pager"),
    element("button", { type: "button", disabled: state.page === 0, onclick: turn(-1) }, "Previous"),
    `page ${state.page + 1} of ${pages}`,
    element("button", { type: "button", disabled: state.page === pages - 1, onclick: turn(1) }, "Next"),
    element("button", { type: "button", onclick: () => download("csv", rows) }, "Download CSV"),
    element("button", { type: "button", onclick: () => download("json", rows) }, "Download JSON"),
  );
}

function headCell({ id, title, isText, descends }) {
  const sorted = state.sort.column === id;
  const sort = () => {
    state.sort = { column: id, descends: sorted ? !state.sort.descends : Boolean(descends) };
    drawTable();
  };
  const arrow = sorted ? (state.sort.descends ? " ↓" : " ↑") : "";
  return element(
    "th",
    {
      scope: "col",
      class: isText && "text",
      "aria-sort": sorted && (state.sort.descends ? "descending" : "ascending"),
    },
    element("button", { type: "button", "data-column": id, onclick: sort }, title + arrow),
  );
}

function tableRow(network) {
  const cells = columns().map(({ value, text, isText }) => {
    const own = value(network);
    return element("td", { class: isText && "text" }, own === null ? "" : String(text ? text(network, own) : own));
  });
  const mark = "AB"[state.pinned.indexOf(network.id)];
  if (mark) cells[0].prepend(element("span", { class: "badge" }, mark));
  if (network.member?.recommended)
    cells[0].append(
      " ",
      element("span", { class: "tag", title: "recommended", role: "img", "aria-label": "recommended" }, "★"),
    );
  return element(
    "tr",
    {
      tabindex: 0,
      "data-id": network.id,
      "aria-selected": String(Boolean(mark)),
      onclick: () => togglePin(network.id),
      onmouseenter: () => hover(network.id),
      onmouseleave: () => hover(null),
      onfocus: () => hover(network.id),
      onblur: () => hover(null),
      onkeydown: rowKey,
    },
    cells,
  );
}

/** Enter pins, arrows go to the next row. */
function rowKey(event) {
  const row = event.currentTarget,
    next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
  if (event.key === "Enter" || event.key === " ") togglePin(row.dataset.id);
  else if (next) next.focus();
  else return;
  event.preventDefault();
}

// ------------------------------------------------------------------------------------------------------------ filters

function drawFilters() {
  const seeds = [...new Set(data.runs.map((run) => run.seed))].sort((a, b) => a - b);
  const select = (name, title, options) =>
    element(
      "label",
      {},
      title,
      element(
        "select",
        { name, onchange: readFilters },
        options.map(([value, text]) =>
          element("option", { value, selected: String(state.filter[name]) === String(value) }, text),
        ),
      ),
    );
  const range = (name, title, step) =>
    element(
      "fieldset",
      {},
      element("legend", {}, title),
      element(
        "div",
        { class: "range" },
        ["min", "max"].map((end) =>
          element("input", {
            type: "number",
            step,
            name: `${name}-${end}`,
            value: state.filter[name][end],
            placeholder: end,
            "aria-label": `${title}, ${end === "min" ? "at least" : "at most"}`,
            oninput: readFilters,
          }),
        ),
      ),
    );
  byId("filters").replaceChildren(
    select("what", "show", [
      ["chosen", "fronts, references, cascades"],
      ["all", "all that was evaluated"],
    ]),
    element(
      "label",
      {},
      "name or key",
      element("input", { name: "text", type: "search", size: 12, value: state.filter.text, oninput: readFilters }),
    ),
    select("algorithm", "algorithm", [["", "any"], ...data.algorithms.map((name) => [name, name])]),
    select("seed", "seed", [["", "any"], ...seeds.map((seed) => [seed, seed])]),
    range("cost", `cost, % of ${data.largest}`, 1),
    range("metric", `${data.problem.metric.replaceAll("_", " ")}, ${state.split}`, 0.005),
    range("stitches", "stitches", 1),
    element("button", { type: "button", onclick: () => setFilter(NO_FILTER) }, "Reset"),
  );
}

function readFilters() {
  const form = byId("filters"),
    number = (name) => (form.elements[name].value === "" ? null : Number(form.elements[name].value));
  const limits = (name) => ({ min: number(`${name}-min`), max: number(`${name}-max`) });
  const texts = Object.fromEntries(
    ["what", "text", "algorithm", "seed"].map((name) => [name, form.elements[name].value]),
  );
  applyFilter({ ...texts, cost: limits("cost"), metric: limits("metric"), stitches: limits("stitches") });
}

/** Change filters, and show in the form what they are now. */
function setFilter(changes) {
  applyFilter({ ...state.filter, ...changes });
  drawFilters();
}

function applyFilter(filter) {
  state.filter = filter;
  state.page = 0;
  drawTable();
  drawFront();
}

// ----------------------------------------------------------------------------------------------------------- downloads

/** Networks as a file: everything that the table shows, as numbers. */
function download(format, networks) {
  const records = networks.map(record);
  const text = format === "json" ? JSON.stringify(records, null, 1) : csv(records);
  const url = URL.createObjectURL(new Blob([text], { type: format === "json" ? "application/json" : "text/csv" }));
  const link = element("a", { href: url, download: `networks.${format}` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function record(network) {
  const row = {
    name: network.name,
    key: network.member?.key ?? network.key,
    what: kindText(network),
    stitches: network.stitches,
    found_by: finderNames(network),
    seeds: seedsOf(network).join(" "),
    evaluation: network.found[0]?.evaluation ?? null,
    predicted_error: network.predicted,
  };
  for (const split of data.splits) {
    const at = on(network, split),
      [, low, high] = at?.metrics?.[data.problem.metric] ?? [];
    row[`${split}_multiply_adds`] = at?.cost ?? null;
    row[`${split}_${data.problem.metric}`] = at ? Number(metricOf(at.error).toFixed(6)) : null;
    row[`${split}_${data.problem.metric}_low`] = low ?? null;
    row[`${split}_${data.problem.metric}_high`] = high ?? null;
  }
  return row;
}

function csv(records) {
  const names = Object.keys(records[0] ?? { name: "" });
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return (
    [names, ...records.map((row) => names.map((name) => row[name]))]
      .map((row) => row.map(cell).join(","))
      .join("\r\n") + "\r\n"
  );
}
