// A run in progress: the server of `pymoo-stitch watch` is asked again and again, and says what is new.

const PAUSE = 2000; // milliseconds between two questions, at least: a long run takes longer to answer, and the search needs the processor

function follow(first) {
  let tag = first.tag;
  const status = byId("status");
  status.hidden = false;
  tell(first);
  const ask = async () => {
    const begun = performance.now();
    try {
      const answer = await fetch(`document.json?tag=${encodeURIComponent(tag)}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(`it answers ${answer.status}`);
      const source = await answer.json();
      if (source.tag !== tag && source.runs) {
        tag = source.tag;
        if (source.runs.length) show(source);
      }
      tell(source);
    } catch (error) {
      status.textContent = `No answer from pymoo-stitch watch (${error.message}). The search itself does not depend on it.`;
    }
    setTimeout(ask, Math.max(PAUSE, 10 * (performance.now() - begun)));
  };
  setTimeout(ask, PAUSE);
}

/** How far the runs are. */
function tell({ live }) {
  const lines = live.runs.map(({ name, done, budget, rate, left, idle }) => {
    const parts = [`${whole(done)}${budget ? ` of ${whole(budget)}` : ""} evaluations`];
    if (budget && done >= budget) parts.push("complete");
    else if (idle > 60) parts.push(`nothing new for ${duration(idle)}`);
    else if (rate)
      parts.push(`${rate.toFixed(rate < 10 ? 1 : 0)} per second${left ? `, about ${duration(left)} left` : ""}`);
    return `${name}: ${parts.join(", ")}`;
  });
  byId("status").textContent =
    `${[...lines, ...live.problems].join("; ") || "Waiting for the first evaluation"} (${live.time})`;
}
