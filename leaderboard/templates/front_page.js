// Redraws the page whenever its address changes.
const drawMore = () => {
  const count = drawn ? MORE : FIRST;
  table.tBodies[0].append(...shown.slice(drawn, drawn + count).map(line));
  drawn = Math.min(shown.length, drawn + count);
  byId("more").hidden = drawn >= shown.length;
  byId("more").textContent = `Show ${Math.min(MORE, shown.length - drawn)} more of ${shown.length - drawn}`;
  byId("shown").textContent = `${shown.length.toLocaleString("en")} of ${COUNT.toLocaleString("en")} rows`;
};
// A mean rank with its interval, on a line from the first to the last place.
const rankScale = (own, last) => {
  const bar = make("span", "", "scale"), place = (rank) => `${(100 * (rank - 1)) / Math.max(1, last - 1)}%`;
  bar.setAttribute("aria-hidden", "true");
  if (own.low === own.low) {
    const range = make("i", "", "range");
    range.style.left = place(own.low);
    range.style.width = `calc(${place(own.high)} - ${place(own.low)})`;
    bar.append(range);
  }
  const dot = make("i", "", "dot");
  dot.style.left = place(own.mean);
  bar.append(dot);
  return bar;
};
const drawStandings = ({ order, datasets }) => {
  const body = byId("standings").tBodies[0], last = Math.max(2, ...ranks.groups.map((group) => group.places.length));
  const value = (content, key, kind = "") => {
    const cell = make("td", content, `num ${kind}`);
    cell.dataset.value = key === key ? key : "";
    return cell;
  };
  body.replaceChildren(...order.map((own) => {
    const head = make("th", "", "pin"), row = make("tr", "", data.references[own.label] ? "reference" : "");
    const fewer = own.groups.length < ranks.groups.length ? "bad" : "";
    head.scope = "row";
    head.dataset.value = data.labels[own.label];
    head.append(...named(own.label));
    const wins = value("", own.share, "lead"), mean = value("", own.mean), interval = value("", own.low), real = value("", ofReal(placesOf(own.label)));
    wins.append(winsOf(own));
    mean.append(rankOf(own), rankScale(own, last));
    interval.append(intervalOf(own));
    real.append(shareOf(own));
    row.append(head, wins, mean, interval, real, value(upToTwo(own.company), own.company), value(`${own.datasets} of ${datasets}`, own.datasets),
      value(`${own.groups.length} of ${ranks.groups.length}`, own.groups.length, fewer), value(whole(own.cells), own.cells), value(percent(own.failing, own.cells), own.failing / own.cells, own.failing ? "bad" : ""));
    return row;
  }));
  mark(headsOf(byId("standings")), null);
  byId("standings").parentElement.hidden = !order.length;
  byId("nobody").hidden = order.length > 0;
  byId("ranking-scope").textContent = datasets >= data.fewest ? "Intervals: Student's, over the means of the datasets." : `Fewer than ${data.fewest} datasets: no interval over datasets.`;
};
const drawReferences = () => {
  const kinds = ["ceiling", "real sample", "floor"], found = new Map();
  for (const row of shown) {
    if (!found.has(datasetOf[row])) found.set(datasetOf[row], { metric: metricOf(row), values: kinds.map(() => []) });
    const value = utilityOf(row, "value"), kind = kinds.indexOf(referenceOf(row));
    if (kind >= 0 && value === value) found.get(datasetOf[row]).values[kind].push(value);
  }
  const rows = Array.from(found.entries()).sort((a, b) => a[0] - b[0]).map(([dataset, { metric, values }]) => {
    const head = make("th"), row = make("tr");
    head.scope = "row";
    head.append(link(data.datasets[dataset], data.datasetPaths[dataset]), make("small", metric ? `${metric} ${arrow(metric)}` : "", "narrow"));
    row.append(head, make("td", metric ? `${metric} ${arrow(metric)}` : ABSENT));
    for (const own of values) row.append(make("td", own.length ? span(Math.min(...own), Math.max(...own), number) : ABSENT, "num"));
    return row;
  });
  byId("references").tBodies[0].replaceChildren(...rows);
};
const showColumns = (all) => {
  byId("all-columns").checked = all;
  table.classList.toggle("brief", !all);
  if (all) table.querySelectorAll("tbody > tr:not(.detail)").forEach(complete);
};
// The event that tells of a new address comes late: the next click must find the new state already.
let drawnFor = null, rankedFor = null, unsorted = [];
const go = (sort) => {
  writeState(sort);
  render();
};
const drawSelection = () => {
  shown = unsorted = shownRows();
  ranks = rankRows(shown);
  if (tunedToo) {
    for (const name of ["lead-lines", "front-chart"]) byId(name).hidden = state.tuned;
    for (const name of ["lead-tuned", "front-tuned"]) byId(name).hidden = !state.tuned;
  }
  const selected = selects.some((select) => select.value !== "") || state.methods.size > 0 || state.tuned, standings = standingsOf(ranks.groups);
  drawLede(standings, selected);
  drawStandings(standings);
  drawReferences();
  byId("better-scope").hidden = !selected;
};
const render = () => {
  drawnFor = location.hash;
  readState();
  const choice = new URLSearchParams(location.hash.slice(1));
  choice.delete("sort");
  // Sorting changes neither ranks nor the summary.
  if (rankedFor !== choice.toString()) {
    rankedFor = choice.toString();
    drawSelection();
  }
  shown = [...unsorted];
  if (state.sort) {
    const keys = new Map(shown.map((row) => [row, sortValue(state.sort, row)])), sign = state.descending ? -1 : 1;
    shown.sort((a, b) => compare(keys.get(a), keys.get(b), sign) || a - b);
  }
  mark(heads, columns.get(state.sort), state.descending);
  // A column that the table is sorted by is shown.
  if (columns.get(state.sort)?.classList.contains("extra")) showColumns(true);
  table.tBodies[0].replaceChildren();
  drawn = 0;
  drawMore();
};

data.rows.detail = data.rows.detail.split(",");
if (tunedToo) tunedToo.addEventListener("change", () => go(sortNow()));
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", (event) => go(event.target === sorter ? sorter.value : sortNow()));
byId("more").addEventListener("click", drawMore);
byId("all-columns").addEventListener("change", () => showColumns(byId("all-columns").checked));
byId("show-all").addEventListener("click", () => {
  form.reset();
  if (tunedToo) tunedToo.checked = false;
  go("");
});
byId("all-methods").addEventListener("click", () => { for (const box of choosable) box.checked = false; go(sortNow()); });
for (const [name, head] of columns) {
  head.querySelector("button").addEventListener("click", () => {
    const descending = state.sort === name ? !state.descending : head.dataset.first === "descending";
    go((descending ? "-" : "") + name);
  });
}
// The address holds the state: links within the page scroll without touching it.
for (const anchor of document.querySelectorAll('a[href^="#"]')) {
  anchor.addEventListener("click", (event) => {
    const goal = byId(anchor.getAttribute("href").slice(1));
    if (!goal) return;
    event.preventDefault();
    goal.scrollIntoView();
  });
}
window.addEventListener("hashchange", () => { if (location.hash !== drawnFor) render(); });
render();
