// The document as networks and runs: everything else reads from here.
//
// A network is whatever has a place in the chart: a reference, a cascade, or what runs have evaluated. `member` is what a report
// found out about it on all splits; of others only the search's own evaluation is known. `found` says which runs evaluated it when.

let data = null; // {problem, splits, runs, networks, byId, algorithms, ...}

function load(source) {
  const networks = new Map();
  for (const member of source.members) {
    const id = member.key ? member.key.slice(0, 12) : `${member.kind} ${member.name}`;
    const known = networks.get(id);
    if (known)
      known.member.found_by = member.found_by; // a reference that was found as well
    else
      networks.set(id, {
        id,
        member,
        kind: member.kind,
        name: member.name,
        key: member.key ?? "",
        stitches: member.stitches ?? null,
        found: [],
        excluded: null,
        predicted: null,
      });
  }
  source.runs.forEach((run, number) => {
    const { key, cost, error, excluded = [], predicted = [], stitches = [] } = run.evaluations;
    for (let i = 0; i < key.length; i++) {
      if (error[i] === null || excluded[i] === "failed") continue;
      let network = networks.get(key[i]);
      if (!network) {
        network = {
          id: key[i],
          member: null,
          kind: "evaluated",
          name: key[i].slice(0, 8),
          key: key[i],
          stitches: stitches[i] ?? null,
          found: [],
          excluded: excluded[i] ?? null,
          predicted: predicted[i] ?? null,
        };
        networks.set(key[i], network);
      }
      if (!network.seen || (network.excluded && !excluded[i])) {
        network.seen = { cost: cost[i], error: error[i] };
        network.excluded = network.member ? null : (excluded[i] ?? null); // the report, or another run, saw all images
      }
      network.found.push({ run: number, evaluation: i + 1 });
    }
  });
  const all = [...networks.values()],
    algorithms = [...new Set(source.runs.map((run) => run.algorithm))];
  for (const network of all) network.by = finders(network, source.runs, algorithms);
  data = { ...source, networks: all, byId: networks, algorithms };
  data.largest = largestName();
  data.onFront = new Set(
    algorithms.flatMap((_, number) =>
      frontOf(
        all.filter(({ by }) => by.includes(number)),
        data.searched,
      ),
    ),
  );
}

/** The numbers of the algorithms that found a network. Of members the report says so, which may be several. */
function finders(network, runs, algorithms) {
  const named = network.member?.found_by?.map((name) => algorithms.indexOf(name)) ?? [];
  const seen = network.found.map(({ run }) => algorithms.indexOf(runs[run].algorithm));
  return [...new Set([...named, ...seen])].filter((number) => number >= 0);
}

/** Cost and error of a network on a split, with the ends of the error's interval if they are known; or undefined. */
function on(network, split) {
  return network.member?.on[split] ?? (split === data.searched ? network.seen : undefined);
}

/** The metric that an error stands for, and the other way round. */
const metricOf = (error) => (data.problem.more_is_better ? 1 - error : error);

/** In % of the most expensive reference. */
const percentOf = (cost) => (100 * cost) / data.problem.largest;

function costText(cost) {
  const percent = percentOf(cost);
  return `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

/** The name of what costs most, of which costs are fractions. */
function largestName() {
  const references = data.networks.filter((network) => network.kind === "reference");
  const most = references.sort((a, b) => on(b, data.searched).cost - on(a, data.searched).cost)[0];
  return most ? most.name : "largest";
}

const finderNames = (network) => network.by.map((number) => data.algorithms[number]).join(", ");
const seedsOf = (network) => [...new Set(network.found.map(({ run }) => data.runs[run].seed))].sort((a, b) => a - b);

/** Those networks that no other dominates on a split, by their cost. */
function frontOf(networks, split) {
  const placed = networks
    .map((network) => [network, on(network, split)])
    .filter(([network, at]) => at && !network.excluded);
  placed.sort(([, a], [, b]) => a.cost - b.cost || a.error - b.error);
  let best = Infinity;
  return placed.filter(([, at]) => at.error < best && ((best = at.error), true)).map(([network]) => network);
}

/** What costs how much more, or less, than something else. */
function moreOrLess(cost, other) {
  const ratio = cost / other;
  return ratio > 2
    ? `costs ${ratio.toFixed(1)} times as much as`
    : `costs ${Math.abs(100 * (1 - ratio)).toFixed(0)} % ${ratio > 1 ? "more" : "less"} than`;
}

/** How a network compares with the references on a split, in sentences. Paired tests if there are any, else plain differences. */
function inWords(network, split) {
  const at = on(network, split);
  if (!at || network.kind === "reference") return [];
  const verdicts = new Map();
  for (const [name, { verdict }] of Object.entries(at.against ?? {}))
    verdicts.set(verdict, [...(verdicts.get(verdict) ?? []), name]);
  if (verdicts.size) return [[...verdicts].map(([verdict, names]) => `${verdict} ${names.join(", ")}`).join("; ")];
  return data.networks
    .filter((other) => other.kind === "reference" && on(other, split))
    .map((other) => {
      const there = on(other, split),
        difference = metricOf(at.error) - metricOf(there.error);
      return `${moreOrLess(at.cost, there.cost)} ${other.name}, ${data.problem.metric} ${signed(difference)} (not tested)`;
    });
}
