// One row of the results.
// ---- Drawing.
let shown = [], ranks = null, drawn = 0;
const named = (label) => {
  const parts = [link(data.labels[label], data.methodPaths[label])], reference = data.references[label];
  if (reference) return [...parts, " ", make("span", reference, "tag")];
  return data.own[label] ? [...parts, " ", make("span", "ours", "tag own", "Designed or changed by the maintainers of this benchmark")] : parts;
};
const badge = (kind, words) => make("span", words, `badge ${kind.replace(",", "").replace(" ", "-") || "none"}`);
const utilityOf = (row, part) => (metricOf(row) ? read(data.utility[metricOf(row)], part)[row] : NaN);
const failedShare = (row) => fact("failed")[row] / (fact("failed")[row] + fact("finished")[row]);
const sortValue = (name, row) => {
  const metric = columns.get(name).dataset.metric;
  if (metric !== undefined) return read(data.measures[metric], "value")[row];
  switch (name) {
    case "method": return data.labels[labelOf[row]];
    case "dataset": return data.datasets[datasetOf[row]];
    case "ipc": return ipcOf[row];
    case "target": return data.targets[targetOf[row]] ?? NaN;
    case "verdict": return data.kinds[kindOf[row]] === "" ? NaN : kindOf[row];
    case "rank": return ranks.rank[row];
    case "utility": return utilityOf(row, "value");
    case "ratio": case "deviation": return utilityOf(row, name);
    case "failed": return failedShare(row);
    default: return fact(name)[row];
  }
};
// Value and interval on a scale from the worst to the best of the dataset, with the lines to beat.
const scales = new Map();
const scaleOf = (row) => {
  const metric = metricOf(row), name = `${datasetOf[row]} ${metric}`;
  if (!scales.has(name)) {
    const ends = [Infinity, -Infinity], values = read(data.utility[metric], "value");
    for (let other = 0; other < COUNT; other += 1) {
      if (datasetOf[other] !== datasetOf[row] || !Number.isFinite(values[other])) continue;
      ends[0] = Math.min(ends[0], values[other]);
      ends[1] = Math.max(ends[1], values[other]);
    }
    scales.set(name, ends);
  }
  return scales.get(name);
};
const scaled = (row) => {
  const [low, high] = scaleOf(row), bar = make("span", "", "scale");
  const place = (value) => Math.min(100, Math.max(0, (100 * (value - low)) / (high - low || 1)));
  bar.setAttribute("aria-hidden", "true");
  const add = (kind, from, to) => {
    if (from !== from) return;
    const piece = make("i", "", kind);
    piece.style.left = `${place(from)}%`;
    if (to !== undefined) piece.style.width = `${place(to) - place(from)}%`;
    bar.append(piece);
  };
  add("range", utilityOf(row, "low"), utilityOf(row, "high"));
  for (const line of ["floor", "sample", "ceiling"]) {
    const own = fact(line)[row];
    if (own === own) add(line, utilityOf(own, "value"));
  }
  add("dot", utilityOf(row, "value"));
  return bar;
};
const measured = (own, row, parts) => {
  const value = at(own, "value", row), limit = at(own, "limit", row);
  const inside = between(at(own, "low", row), at(own, "high", row)), deviation = at(own, "deviation", row);
  if (inside) parts.push(make("small", inside));
  if (deviation === deviation) parts.push(make("small", `seeds sd ${number(deviation)}`));
  return { value, limit };
};
const metricCell = (cell, metric, row) => {
  const own = data.measures[metric], parts = [], { value, limit } = measured(own, row, parts);
  if (value === value && limit === limit) {
    const kept = data.directions[metric] === "higher" ? value >= limit : value <= limit;
    parts.push(make("small", `${kept ? "within" : "beyond"} ${number(limit)}`, kept ? "" : "bad", "the acceptance threshold of the paper that defines it"));
  }
  const remark = own.remark ? data.texts[at(own, "remark", row)] : "";
  if (remark) parts.push(make("small", remark.split(":")[0], "", remark));
  cell.classList.toggle("empty", value !== value && !remark);
  cell.append(number(value), ...parts);
};
const fill = {
  method(cell, row) {
    const open = make("button", "", "open");
    open.type = "button";
    open.setAttribute("aria-expanded", "false");
    open.setAttribute("aria-label", `Details of ${data.labels[labelOf[row]]} on ${data.datasets[datasetOf[row]]}`);
    open.addEventListener("click", () => toggle(open, row));
    cell.append(open, ...named(labelOf[row]));
    if (tunedOf[row]) cell.append(" ", make("span", "tuned", "tag", "The defaults of this method were chosen with this dataset in view: left out of its rank"));
    if (fact("study")[row] && !data.allStudy) cell.append(" ", make("span", "study only", "stamp", "Seeded noise: no conclusion about publishing this release may be drawn"));
  },
  dataset(cell, row) {
    cell.append(link(data.datasets[datasetOf[row]], data.datasetPaths[datasetOf[row]]));
    for (const more of [data.datasetTasks[datasetOf[row]], text("variant", row)]) if (more) cell.append(make("small", more, "wraps"));
  },
  ipc: (cell, row) => cell.append(ipcText(data.ipcs[ipcOf[row]])),
  target: (cell, row) => cell.append(epsilonText(row) || ABSENT),
  verdict(cell, row) {
    const verdict = text("verdict", row);
    cell.append(badge(data.kinds[kindOf[row]], verdict || "no verdict"));
    if (text("warned", row)) cell.append(" ", make("span", "⚠", "warn", text("warned", row)));
    cell.append(make("small", text("why", row) || (verdict ? "no reason given" : "no cell finished"), "why", text("why", row)));
  },
  rank(cell, row) {
    const among = ranks.among.get(row);
    if (among) {
      const whole_ = ofRow(make("span"), row, "rank");
      whole_.append(make("strong", upToTwo(ranks.rank[row])), ` of ${among}`);
      cell.append(whole_);
    }
    else {
      const reason = ranks.reason.get(row), tuned = reason === data.chosenHere;
      cell.append(make("small", `not ranked: ${tuned ? "tuned here" : reason}`, "wraps", tuned ? reason : ""));
    }
  },
  utility(cell, row) {
    const metric = metricOf(row), value = utilityOf(row, "value");
    if (value !== value) return cell.append(ABSENT, make("small", metric ? `no ${metric}` : ranks.reason.get(row) ?? "", "wraps"));
    const least = utilityOf(row, "least"), seeds = least === least ? `; ${utilityOf(row, "count")} seeds: ${number(least)} to ${number(utilityOf(row, "largest"))}` : "";
    cell.append(ofRow(make("strong", number(value)), row, "utility", metric), ` ${between(utilityOf(row, "low"), utilityOf(row, "high"))}`, scaled(row));
    cell.append(make("small", `${metric} ${arrow(metric)}${seeds}`));
  },
  ratio(cell, row) {
    const own = utilityOf(row, "ratio");
    cell.append(own === own ? ofRow(make("span", share(own)), row, "of real", metricOf(row)) : ABSENT);
  },
  deviation: (cell, row) => cell.append(ofRow(make("span", deviated(utilityOf(row, "deviation"))), row, "seeds sd", metricOf(row))),
  failed(cell, row) {
    const failed = fact("failed")[row], skipped = fact("skipped")[row], tried = failed + fact("finished")[row];
    if (tried) cell.append(make("strong", percent(failed, tried), failed ? "bad" : ""), make("small", `${failed} of ${tried} ${tried === 1 ? "cell" : "cells"}`));
    if (skipped) cell.append(make("small", `${skipped} skipped`));
  },
  fit: (cell, row) => cell.append(seconds(fact("fit")[row])),
  memory: (cell, row) => cell.append(whole(fact("memory")[row])),
  released: (cell, row) => cell.append(span(fact("releasedLow")[row], fact("released")[row], whole)),
};
for (const name of ["claimed", "proven", "audited"]) {
  fill[name] = (cell, row) => {
    cell.append(ofRow(make("span", span(fact(`${name}Low`)[row], fact(name)[row], short)), row, `eps ${name}`));
    if (name === "audited" && fact("detectable")[row] === fact("detectable")[row]) {
      cell.append(make("small", `could show ${short(fact("detectable")[row])}`, "", "the largest epsilon that the trials of the audit could have shown"));
    }
  };
}
const toggle = (button, row) => {
  const line = button.closest("tr"), opened = button.getAttribute("aria-expanded") === "true";
  if (NARROW) complete(line);
  button.setAttribute("aria-expanded", String(!opened));
  line.classList.toggle("opened", !opened);
  if (opened) return line.nextElementSibling.remove();
  const places = data.rows.detail[row].split(" "), list = make("dl"), pages = data.pages[row] ?? [];
  for (let turn = 0; turn < places.length; turn += 2) list.append(make("dt", data.texts[places[turn]]), make("dd", data.texts[places[turn + 1]]));
  const own = make("dd");
  pages.forEach(([seed, path], place) => own.append(place ? ", " : "", link(`seed ${seed}`, path)));
  list.append(make("dt", "Pages of its cells"), pages.length ? own : make("dd", "none was written"));
  const cell = make("td");
  cell.colSpan = heads.length;
  cell.append(list);
  const more = make("tr", "", "detail");
  more.append(cell);
  line.after(more);
};
const cellOf = (head, row) => {
  const { column, metric } = head.dataset, cell = make(column === "method" ? "th" : "td", "", column === "method" ? "pin" : `num ${metric === undefined ? column : ""} ${head.classList.contains("extra") ? "extra" : ""}`);
  if (column === "method") cell.scope = "row";
  cell.dataset.label = head.dataset.label;
  if (metric === undefined) fill[column](cell, row);
  else metricCell(cell, metric, row);
  return cell;
};
// The other columns come last, and are made when they are asked for: there may be a hundred.
const extraHeads = heads.filter((head) => head.classList.contains("extra")), firstHeads = heads.filter((head) => !extraHeads.includes(head));
const rowOf = new WeakMap();
const complete = (line) => {
  if (line.cells.length < heads.length) line.append(...extraHeads.map((head) => cellOf(head, rowOf.get(line))));
};
const line = (row) => {
  const reference = referenceOf(row).replace(" ", "-"), lost = !fact("finished")[row] && fact("failed")[row];
  const own = make("tr", "", `${reference}${reference ? " reference" : ""}${lost ? " unfinished" : ""}`);
  rowOf.set(own, row);
  own.append(...firstHeads.map((head) => cellOf(head, row)));
  if (!table.classList.contains("brief")) complete(own);
  return own;
};
