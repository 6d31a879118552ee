// The runs: hypervolume, predictions, stitches and utilisation as a search goes on, and what is known of each run.

function drawCurves() {
  const figures = [];
  const drawLater = []; // when all have their places, and thus their widths
  const figure = (id, draw, title, extra = []) => {
    const container = element("div", { class: "chart", id });
    figures.push(element("figure", {}, element("figcaption", {}, title, ...extra), container));
    drawLater.push(() => draw(container));
  };
  const predicted = data.runs.some((run) => run.evaluations.predicted),
    counted = data.runs.some((run) => run.evaluations.nonzero);
  const units = hypervolumeUnits(),
    unit = units.find(([name]) => name === state.unit) ? state.unit : "evaluations";
  const choose = (value) => {
    state.unit = value;
    drawCurves();
  };
  figure("hypervolume", (container) => drawHypervolume(container, unit), "Hypervolume over", [
    element(
      "span",
      { class: "choice", role: "radiogroup", "aria-label": "Hypervolume over" },
      choice("unit", units, unit, choose),
    ),
  ]);
  if (predicted) figure("predictions", drawPredictions, "Predicted and real error");
  if (counted) figure("stitches", drawStitches, "Stitches of genotypes: nonzero (dashed) and active");
  if (data.runs.some((run) => run.utilisation)) figure("utilisation", drawUtilisation, "Utilisation of the workers");
  refill(byId("curves"), ...figures);
  for (const draw of drawLater) draw();
}

function hypervolumeUnits() {
  const units = [
    ["evaluations", "evaluations"],
    ["seconds", data.problem.time],
  ];
  return data.runs.some((run) => run.evaluations.images) ? [units[0], ["images", "images"], units[1]] : units;
}

/** What has been used up when each evaluation was complete. */
function used(run, unit) {
  const { key, images, seconds } = run.evaluations;
  if (unit === "evaluations") return key.map((_, i) => i + 1);
  if (unit === "seconds") return seconds;
  let sum = 0;
  return key.map((_, i) => (sum += images?.[i] ?? data.images?.[data.searched] ?? 0));
}

/** For each algorithm the median of its runs and a band between the quartiles; thin lines are single runs. */
function drawHypervolume(container, unit) {
  const curves = data.runs
    .map((run) => {
      const x = used(run, unit),
        [places, values] = run.hypervolume;
      return { run, end: x.at(-1), points: places.map((place, i) => [x[place], values[i]]) };
    })
    .filter(({ points }) => points.length);
  const end = Math.max(1e-9, ...curves.map((curve) => curve.end)),
    top = Math.max(1e-9, ...curves.map(({ points }) => points.at(-1)[1]));
  const early = Math.min(...curves.map(({ points }) => valueAt(points, 0.05 * end) ?? points[0][1]));
  const bottom = Number.isFinite(early) ? Math.max(0, early - 0.2 * (top - early)) : 0; // not for the steep rise at first
  const drawn = chart(container, {
    x: { min: 0, max: end, label: unit === "seconds" ? `${data.problem.time} (seconds)` : unit },
    y: { min: bottom, max: top + 0.06 * (top - bottom || 1), label: "hypervolume" },
    height: 280,
    label: `Hypervolume over ${unit}`,
  });
  data.algorithms.forEach((algorithm, number) => {
    const own = curves.filter(({ run }) => run.algorithm === algorithm);
    const look = { fill: "none", stroke: `var(--c${number % 7})` };
    const pixels = (points, last) => stepPath([...points, last].map(([x, y]) => [drawn.x(x), drawn.y(y)]));
    if (own.length === 1) {
      const [{ points, end: last }] = own;
      drawn.inside.append(
        shape("path", {
          d: pixels(points, [last, points.at(-1)[1]]),
          ...look,
          "stroke-width": 2,
          "stroke-dasharray": DASHES[number % 5],
        }),
      );
      return;
    }
    for (const { points, end: last } of own) {
      drawn.inside.append(
        shape("path", {
          d: pixels(points, [last, points.at(-1)[1]]),
          ...look,
          "stroke-width": 0.7,
          "stroke-opacity": 0.5,
        }),
      );
    }
    drawBand(drawn, ...band(own), number);
  });
}

/** Median and quartiles of step functions, where all of them are defined. */
function band(curves) {
  const start = Math.max(...curves.map(({ points }) => points[0][0])),
    end = Math.min(...curves.map((curve) => curve.end));
  const x = Array.from({ length: 200 }, (_, i) => start + ((end - start) * i) / 199);
  return end > start ? [x, x.map((at) => quartiles(curves.map(({ points }) => valueAt(points, at))))] : [[], []];
}

function drawBand(drawn, x, values, number, dash = DASHES[number % 5]) {
  if (!x.length) return;
  const path = (part) => x.map((at, i) => [drawn.x(at), drawn.y(values[i][part])]);
  const fill = `var(--c${number % 7})`;
  drawn.inside.append(
    shape("path", { d: `${linePath([...path(0), ...path(2).reverse()])}Z`, fill, "fill-opacity": 0.18 }),
    shape("path", { d: linePath(path(1)), fill: "none", stroke: fill, "stroke-width": 2, "stroke-dasharray": dash }),
  );
}

/** Of a step function, given as points by x: its value at a place, or undefined before the first. */
function valueAt(points, x) {
  let low = 0,
    high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle + 1;
    else high = middle;
  }
  return points[low - 1]?.[1];
}

function drawPredictions(container) {
  const points = [];
  for (const run of data.runs) {
    const { predicted = [], error, excluded = [] } = run.evaluations,
      number = data.algorithms.indexOf(run.algorithm);
    predicted.forEach((value, i) => {
      if (value !== null && error[i] !== null && !excluded[i]) points.push([value, error[i], number]);
    });
  }
  const errors = points.map(([, error]) => error).sort((a, b) => a - b);
  const least = errors[0] ?? 0,
    most = errors[Math.floor(0.98 * (errors.length - 1))] ?? 1,
    margin = 0.06 * (most - least) || 0.05;
  const axis = { min: Math.max(0, least - margin), max: most + margin };
  const drawn = chart(container, {
    x: { ...axis, label: "predicted error" },
    y: { ...axis, label: "real error" },
    height: 280,
    label: `Predicted and real errors of ${plural(points.length, "evaluation")}`,
  });
  const { context, area } = drawn,
    colors = data.algorithms.map((_, number) => color(`c${number % 7}`));
  context.globalAlpha = 0.4;
  for (const [predicted, error, number] of points) {
    const x = drawn.x(predicted),
      y = drawn.y(error);
    if (!isInside(area, x, y)) continue;
    context.fillStyle = colors[number];
    context.fillRect(x - 1.3, y - 1.3, 2.6, 2.6);
  }
  drawn.inside.append(
    shape("line", {
      x1: drawn.x(axis.min),
      y1: drawn.y(axis.min),
      x2: drawn.x(axis.max),
      y2: drawn.y(axis.max),
      stroke: "var(--muted)",
      "stroke-dasharray": "3 3",
    }),
  );
}

/** Of the first run of each algorithm: median and quartiles of a window that moves over the evaluations. */
function drawStitches(container) {
  const runs = data.algorithms
    .map((algorithm) => data.runs.find((run) => run.algorithm === algorithm))
    .filter((run) => run.evaluations.nonzero);
  const bands = runs.flatMap(({ algorithm, evaluations: { nonzero, stitches } }) => {
    const number = data.algorithms.indexOf(algorithm);
    return [
      [moving(nonzero), number, "7 3"],
      [moving(stitches), number, ""],
    ];
  });
  const most = Math.max(1, ...bands.flatMap(([[, values]]) => values.map(([, , high]) => high)));
  const length = Math.max(...runs.map((run) => run.evaluations.key.length));
  const drawn = chart(container, {
    x: { min: 0, max: length, label: "evaluations" },
    y: { min: 0, max: most * 1.05, label: "stitches" },
    height: 280,
    label: "Nonzero and active stitches over evaluations",
  });
  for (const [[x, values], number, dash] of bands) drawBand(drawn, x, values, number, dash);
}

function moving(values) {
  const window = Math.max(1, Math.floor(values.length / 40)),
    places = Math.min(values.length, 160);
  const centers = Array.from({ length: places }, (_, i) =>
    Math.round((i * (values.length - 1)) / Math.max(1, places - 1)),
  );
  const around = (center) => values.slice(Math.max(0, center - (window >> 1)), center + window - (window >> 1));
  return [centers.map((center) => center + 1), centers.map((center) => quartiles(around(center)))];
}

function drawUtilisation(container) {
  const runs = data.runs.filter((run) => run.utilisation),
    end = Math.max(...runs.map((run) => run.utilisation.seconds));
  const drawn = chart(container, {
    x: { min: 0, max: end, label: "seconds since the first evaluation" },
    y: { min: 0, max: 1.04, label: "fraction of workers busy" },
    height: 280,
    label: "Utilisation of the workers over time",
  });
  for (const {
    algorithm,
    utilisation: { busy, seconds },
  } of runs) {
    const number = data.algorithms.indexOf(algorithm),
      points = busy.map((part, i) => [drawn.x((i * seconds) / busy.length), drawn.y(part)]);
    const path = stepPath(points) + `H${drawn.x(seconds)}`;
    drawn.inside.append(
      shape("path", {
        d: path,
        fill: "none",
        stroke: `var(--c${number % 7})`,
        "stroke-width": 1.6,
        "stroke-dasharray": DASHES[number % 5],
      }),
    );
  }
}

function drawRuns() {
  const head = [
    "algorithm",
    "seed",
    "population",
    "evaluations",
    "failed",
    "screened out",
    "rank correlation of predictions",
    "hypervolume",
    "workers",
    "journal",
  ];
  const rows = data.runs.map((run) => [
    run.algorithm,
    run.seed,
    run.pop_size ?? "",
    `${whole(run.evaluations.key.length)}${run.budget ? ` of ${whole(run.budget)}` : ""}`,
    whole(run.failed),
    whole(run.screened),
    run.rank_correlation ?? "",
    fixed(run.hypervolume[1].at(-1) ?? 0),
    run.utilisation?.workers ?? "",
    run.path,
  ]);
  byId("runs").replaceChildren(
    element(
      "div",
      { class: "scroll" },
      element(
        "table",
        {},
        element(
          "thead",
          {},
          element(
            "tr",
            {},
            head.map((text, i) => element("th", { class: (i === 0 || i === 9) && "text" }, text)),
          ),
        ),
        element(
          "tbody",
          {},
          rows.map((row) =>
            element(
              "tr",
              {},
              row.map((text, i) => element("td", { class: (i === 0 || i === 9) && "text" }, String(text))),
            ),
          ),
        ),
      ),
    ),
    data.comparison ? element("pre", { tabindex: 0, "aria-label": "hypervolumes compared" }, data.comparison) : "",
  );
}
