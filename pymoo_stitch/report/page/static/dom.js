// Elements, and numbers as text. Whatever comes from the document is put in as text, never as markup.

const byId = (id) => document.getElementById(id);

/** An HTML element: `element("p", {class: "note", onclick: f}, "text", child)`. Texts become text nodes. */
function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Give an element new contents. Whatever had the focus in it keeps it, if it is still there. */
function refill(container, ...children) {
  const key = ({ dataset, name, value, textContent }) =>
    dataset.id ?? dataset.column ?? (name ? `${name} ${value}` : textContent);
  const focused = container.contains(document.activeElement) ? key(document.activeElement) : null;
  container.replaceChildren(...children);
  if (focused === null) return;
  const reachable = [...container.querySelectorAll("button, input, select, summary, [tabindex]")];
  reachable.find((node) => key(node) === focused)?.focus({ preventScroll: true });
}

/** One of several, as radio buttons in a row. */
function choice(name, values, current, choose) {
  return values.map(([value, text]) =>
    element(
      "label",
      {},
      element("input", { type: "radio", name, value, checked: value === current, onchange: () => choose(value) }),
      text,
    ),
  );
}

/** A colour of the page by its name, for canvases. */
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const whole = (value) => Math.round(value).toLocaleString("en-US");
const fixed = (value, digits = 4) => value.toFixed(digits);
const signed = (value, digits = 4) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
const plural = (count, word, more = `${word}s`) => `${whole(count)} ${count === 1 ? word : more}`;

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} days`;
}

/** [first quartile, median, third quartile] of numbers. */
function quartiles(values) {
  const sorted = Float64Array.from(values).sort();
  return [0.25, 0.5, 0.75].map((part) => {
    const place = part * (sorted.length - 1),
      low = Math.floor(place);
    return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
  });
}
