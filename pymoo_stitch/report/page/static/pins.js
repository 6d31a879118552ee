// What is pinned: one network or two side by side, with all that is known of them.

const MOST_PINS = 2;

const pinned = () => state.pinned.map((id) => data.byId.get(id)).filter(Boolean);

function togglePin(id) {
  const isPinned = state.pinned.includes(id);
  state.pinned = isPinned ? state.pinned.filter((other) => other !== id) : [...state.pinned, id].slice(-MOST_PINS);
  drawPins();
  drawMarks();
  drawTable();
}

function drawPins() {
  const pins = pinned();
  byId("pins-note").textContent =
    pins.length === 2
      ? comparison(...pins)
      : pins.length
        ? "Pin a second one to compare. Escape unpins."
        : "Click a point, or press Enter in a row of the table.";
  refill(byId("pins"), ...pins.map(card));
  pins.forEach(drawReliability);
}

/** Two networks in one sentence. */
function comparison(a, b) {
  const costs = [a, b].map((network) => on(network, data.searched) ?? on(network, data.splits.at(-1)));
  const cost = `A ${moreOrLess(costs[0].cost, costs[1].cost)} B`;
  const differences = data.splits
    .filter((split) => on(a, split) && on(b, split))
    .map((split) => `${signed(metricOf(on(a, split).error) - metricOf(on(b, split).error))} on ${split}`);
  return `${cost}; ${data.problem.metric} of A less that of B: ${differences.join(", ")}.`;
}

function card(network, number) {
  const { member } = network,
    title = `${network.name}, ${kindText(network)}`;
  return element(
    "article",
    { class: "card", "aria-label": title },
    element(
      "div",
      { class: "heading" },
      element(
        "h3",
        {},
        element("span", { class: "badge" }, "AB"[number]),
        `${title} `,
        member?.recommended && element("span", { class: "tag" }, "recommended"),
      ),
      element("button", { type: "button", class: "unpin", onclick: () => togglePin(network.id) }, "Unpin"),
    ),
    element(
      "div",
      { class: "facts" },
      element("p", {}, factsText(network)),
      metricsTable(network),
      data.splits.flatMap((split) =>
        inWords(network, split).map((words) => element("p", {}, `On ${split}: ${words}.`)),
      ),
    ),
    element(
      "div",
      { class: "facts" },
      member?.drawing
        ? element(
            "div",
            { class: "drawing", tabindex: 0, role: "group", "aria-label": "drawing" },
            drawing(member.drawing, `Drawing of ${title}`),
          )
        : element(
            "p",
            { class: "note" },
            "A report has drawings, intervals and tests of fronts, references and cascades.",
          ),
      member?.parts && folded("parts", "Parts", member.parts.map(partsTable)),
      member?.reliability &&
        folded(
          "reliability",
          `Reliability on ${data.splits.at(-1)}`,
          element("div", { class: "chart", id: `reliability-${number}` }),
        ),
    ),
    member?.commands && folded("export", "Export", member.commands.map(command)),
  );
}

/** Something to open and close. It is so in all cards, and stays so when they are drawn again. */
function folded(name, title, content) {
  const keep = ({ currentTarget }) => {
    if (state.open[name] === currentTarget.open) return;
    state.open[name] = currentTarget.open;
    drawPins();
  };
  return element(
    "details",
    { class: name, open: state.open[name], ontoggle: keep },
    element("summary", {}, title),
    content,
  );
}

function factsText(network) {
  const at = on(network, state.split) ?? on(network, data.searched) ?? on(network, data.splits.at(-1));
  const parts = [
    `${costText(at.cost)} of ${data.largest}'s cost`,
    `${whole(at.cost)} multiply-adds${network.kind === "cascade" ? ` expected on ${state.split}` : ""}`,
  ];
  if (network.stitches !== null) parts.push(plural(network.stitches, "stitch", "stitches"));
  if (network.found.length) parts.push(foundText(network));
  if (network.excluded) parts.push("stopped early, since it could no longer matter: its error is an estimate");
  if (network.key) parts.push(`key ${network.key}`);
  return parts.join(" · ");
}

function foundText(network) {
  const [{ run, evaluation }, ...others] = network.found,
    { algorithm, seed } = data.runs[run];
  return `found by ${algorithm}, seed ${seed}, evaluation ${whole(evaluation)}${others.length ? `, and in ${plural(others.length, "other run")}` : ""}`;
}

/** Every metric on every split, with its interval where there is one. */
function metricsTable(network) {
  const splits = data.splits.filter((split) => on(network, split)),
    { metric } = data.problem;
  const of = (split) => on(network, split).metrics ?? { [metric]: [metricOf(on(network, split).error)] };
  const names = [...new Set(splits.flatMap((split) => Object.keys(of(split))))];
  const value = ([middle, low, high] = []) => [
    middle === undefined ? "" : fixed(middle),
    low === undefined ? null : element("small", {}, `${fixed(low)}–${fixed(high)}`),
  ];
  return element(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": "metrics" },
    element(
      "table",
      {},
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("th", {}),
          splits.map((split) => element("th", { scope: "col" }, split)),
        ),
      ),
      element(
        "tbody",
        {},
        names.map((name) =>
          element(
            "tr",
            {},
            element("th", { scope: "row", class: "text" }, name.replaceAll("_", " ")),
            splits.map((split) => element("td", {}, value(of(split)[name]))),
          ),
        ),
      ),
    ),
  );
}

function partsTable(rows, number, all) {
  const head = ["", "part", "from", "to", "multiply-adds", "%", "reads"],
    isText = [0, 1, 1, 1, 0, 0, 1];
  return element(
    "div",
    { class: "scroll" },
    element(
      "table",
      {},
      all.length > 1 && element("caption", {}, `Stage ${number + 1}`),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          head.map((text, i) => element("th", { class: isText[i] && "text" }, text)),
        ),
      ),
      element(
        "tbody",
        {},
        rows.map((row) =>
          element(
            "tr",
            {},
            row.map((text, i) => element("td", { class: isText[i] && "text" }, text)),
          ),
        ),
      ),
    ),
  );
}

function command(text) {
  const button = element("button", { type: "button", onclick: () => copy(text, button) }, "Copy");
  return element("div", { class: "command" }, element("code", {}, text), button);
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => {
    button.textContent = "Copy";
  }, 1500);
}

/** How often answers are right, against how probable the network says they are. Bins of few answers are left out. */
function drawReliability(network, number) {
  const container = byId(`reliability-${number}`);
  if (!container || !state.open.reliability) return;
  const axis = { min: 0, max: 1 };
  const drawn = chart(container, {
    x: { ...axis, label: "probability of the answer" },
    y: { ...axis, label: "fraction right" },
    height: 240,
    label: `Reliability of ${network.name}`,
  });
  const [counts, probabilities, right] = network.member.reliability;
  const points = counts
    .map((count, i) => [probabilities[i] / count, right[i] / count])
    .filter((_, i) => counts[i] >= 10)
    .map(([x, y]) => [drawn.x(x), drawn.y(y)]);
  drawn.inside.append(
    shape("line", {
      x1: drawn.x(0),
      y1: drawn.y(0),
      x2: drawn.x(1),
      y2: drawn.y(1),
      stroke: "var(--muted)",
      "stroke-dasharray": "3 3",
    }),
    shape("path", { d: linePath(points), fill: "none", stroke: "var(--c0)", "stroke-width": 2 }),
    ...points.map(([x, y]) => marker(0, x, y, 4)),
  );
}
