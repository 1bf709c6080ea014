"use strict";
// Texts of a run are set as text content, never as markup: nothing from a run can become code.
(() => {
  const byId = (id) => document.getElementById(id);
  const ABSENT = "–", PAGE = 100, RESAMPLES = 1000, FEWEST = 5;

  // ---- Tables that can be sorted: what is absent comes last either way.
  const collator = new Intl.Collator("en", { numeric: true });
  const isAbsent = (value) => value === "" || value !== value;
  const compare = (a, b, sign) => {
    if (isAbsent(a) || isAbsent(b)) return isAbsent(a) - isAbsent(b);
    if (typeof a === "string") return sign * collator.compare(a, b);
    return sign * ((a > b) - (a < b));
  };
  const mark = (heads, sorted, descending) => {
    for (const head of heads) head.removeAttribute("aria-sort");
    if (sorted) sorted.setAttribute("aria-sort", descending ? "descending" : "ascending");
  };
  const headsOf = (table) => Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = headsOf(table), body = table.tBodies[0];
    heads.forEach((head, place) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const descending = now ? now === "ascending" : head.dataset.first === "descending";
        const valueOf = (row) => {
          const cell = row.cells[place], text = cell.dataset.value ?? cell.textContent.trim();
          return head.dataset.kind === "number" && text !== "" ? Number(text) : text;
        };
        const rows = Array.from(body.rows, (row) => [row, valueOf(row)]);
        rows.sort((a, b) => compare(a[1], b[1], descending ? -1 : 1));
        body.append(...rows.map((pair) => pair[0]));
        mark(heads, head, descending);
      });
    });
  }

  // ---- The front page.
  const block = byId("data");
  if (!block) return;
  const data = JSON.parse(block.textContent);
  const read = (holder, name) => {
    if (typeof holder[name] === "string") {
      holder[name] = Float64Array.from(holder[name].split(","), (text) => (text === "" ? NaN : Number(text)));
    }
    return holder[name] ?? (holder[name] = new Float64Array(COUNT).fill(NaN));
  };
  const COUNT = data.rows.entrant.split(",").length;
  const fact = (name) => read(data.rows, name);
  const entrantOf = fact("entrant"), cohortOf = fact("cohort"), sizeOf = fact("size"), targetOf = fact("target");
  const kindOf = fact("kind"), groupOf = fact("group"), barredOf = fact("barred");
  const text = (name, row) => data.texts[fact(name)[row]];
  const referenceOf = (row) => data.references[entrantOf[row]];

  // ---- Numbers as everywhere on the site.
  const number = (value) => {
    if (value !== value) return ABSENT;
    const size = Math.abs(value);
    if (size === Infinity) return value > 0 ? "∞" : "-∞";
    if (size === 0 || (size >= 0.001 && size < 100)) return value.toFixed(3);
    return size >= 100 && size < 1e6 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
  };
  const short = (value) => (value !== value ? ABSENT : value === Infinity ? "∞" : String(Number(value.toPrecision(4))));
  const whole = (value) => (value !== value ? ABSENT : Math.round(value).toLocaleString("en"));
  const seconds = (value) => (value !== value ? ABSENT : value < 10 ? value.toFixed(1) : whole(value));
  const span = (low, high, write) => (write(low) === write(high) ? write(high) : `${write(low)} to ${write(high)}`);
  const between = (low, high) => (low === low && high === high ? `[${number(low)}, ${number(high)}]` : "");
  const percent = (part, all) => `${Math.round((100 * part) / all)}%`;
  const sizeText = (size) => ({ full: "full size", own: "own size" })[size] ?? size;
  const arrow = (metric) => ({ higher: "↑", lower: "↓" })[data.directions[metric]] ?? "·";
  const make = (tag, content = "", kind = "", title = "") => {
    const element = document.createElement(tag);
    if (content !== "") element.textContent = content;
    if (kind) element.className = kind;
    if (title) element.title = title;
    return element;
  };
  const link = (content, path) => {
    const element = make("a", content, "name");
    element.href = path;
    return element;
  };

  // ---- State: all of it is in the address, so that a link shows the same page.
  const form = byId("filters"), selects = Array.from(form.querySelectorAll("select[name]"));
  const boxes = Array.from(form.querySelectorAll("input[name=method]")), choosable = boxes.filter((box) => !box.disabled);
  const table = byId("results"), heads = headsOf(table), sorter = byId("sorter");
  const columns = new Map(heads.map((head) => [head.dataset.column, head]));
  let state = {};
  const readState = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    const now = { methods: new Set(), sort: "", descending: false };
    for (const select of selects) {
      const known = asked.has(select.name) && Array.from(select.options).some((o) => o.value === `=${asked.get(select.name)}`);
      now[select.name] = known ? asked.get(select.name) : null;
      select.value = known ? `=${asked.get(select.name)}` : "";
    }
    const wanted = new Set(asked.getAll("method"));
    for (const box of choosable) {
      box.checked = wanted.has(box.value);
      if (box.checked) now.methods.add(box.value);
    }
    const sort = asked.get("sort") ?? "";
    if (columns.has(sort.replace(/^-/, ""))) {
      now.descending = sort.startsWith("-");
      now.sort = sort.replace(/^-/, "");
    }
    sorter.value = now.sort ? sort : "";
    const chosen = now.methods.size;
    byId("methods-shown").textContent = chosen ? `${chosen} of ${choosable.length}` : "all";
    state = now;
  };
  const writeState = (sort) => {
    const asked = new URLSearchParams();
    for (const select of selects) if (select.value !== "") asked.append(select.name, select.value.slice(1));
    for (const box of choosable) if (box.checked) asked.append("method", box.value);
    if (sort) asked.append("sort", sort);
    // An empty one would scroll to the top.
    location.hash = asked.toString() || "all";
  };
  const sortNow = () => (state.sort ? (state.descending ? "-" : "") + state.sort : "");

  // ---- Which rows are shown. References stay: dataset and task alone can hide them, and another
  // size or epsilon where they have one. A failed cell has no verdict: it stays with its method.
  const metricOf = (row) => (state.model === null ? data.headlines : data.models[state.model])[cohortOf[row]];
  const epsilonText = (row) => (targetOf[row] !== targetOf[row] ? "" : short(data.targets[targetOf[row]]));
  const inPlace = (row) => {
    const reference = referenceOf(row) !== "", size = data.sizes[sizeOf[row]];
    if (state.dataset !== null && data.cohorts[cohortOf[row]] !== state.dataset) return false;
    if (state.task !== null && data.cohortTasks[cohortOf[row]] !== state.task) return false;
    if (state.size !== null && size !== state.size && !(reference && /\D/.test(size))) return false;
    if (state.eps !== null && epsilonText(row) !== state.eps && !(reference && epsilonText(row) === "")) return false;
    return reference || !state.methods.size || state.methods.has(data.entrants[entrantOf[row]]);
  };
  const shownRows = () => {
    const found = [];
    for (let row = 0; row < COUNT; row += 1) if (inPlace(row)) found.push(row);
    if (state.verdict === null) return found;
    const fits = (row) => data.kinds[kindOf[row]] === state.verdict;
    const own = new Set(found.filter((row) => fits(row) && !referenceOf(row)).map((row) => entrantOf[row]));
    return found.filter((row) => fits(row) || referenceOf(row) || (data.kinds[kindOf[row]] === "" && own.has(entrantOf[row])));
  };

  // ---- Ranks among the shown rows, as `rank.py` takes them: seed by seed, failing ones last,
  // equal ones sharing the mean of their ranks; seeds that not all have are left out.
  const seedsOf = (metric, row) => {
    const own = data.utility[metric];
    if (typeof own.seeds === "string") own.seeds = own.seeds.split(",");
    if (typeof own.seeds[row] === "string") {
      const sign = data.directions[metric] === "lower" ? -1 : 1;
      own.seeds[row] = new Map(own.seeds[row].split(" ").filter(Boolean).map((pair) => {
        const [seed, value] = pair.split(":");
        return [seed, value === "" ? NaN : sign * Number(value)];
      }));
    }
    return own.seeds[row];
  };
  const rankRows = (rows) => {
    const ranks = { rank: new Float64Array(COUNT).fill(NaN), among: new Map(), reason: new Map(), groups: [] };
    const groups = new Map();
    for (const row of rows) {
      if (barredOf[row] || !metricOf(row)) {
        ranks.reason.set(row, barredOf[row] ? text("barred", row) : state.model ? `no ${state.model} here` : "no utility score");
      } else if (groups.has(groupOf[row])) groups.get(groupOf[row]).push(row);
      else groups.set(groupOf[row], [row]);
    }
    for (const members of groups.values()) {
      const values = members.map((row) => seedsOf(metricOf(row), row));
      const seeds = Array.from(values[0].keys()).filter((seed) => values.every((own) => own.has(seed)));
      if (members.length < 2 || !seeds.length) {
        const why = members.length < 2 ? "no other sound method shown here" : "no seed in common with the others shown";
        for (const row of members) ranks.reason.set(row, why);
        continue;
      }
      const places = members.map((row) => ({ row, rank: 0, beaten: 0, failing: 0 }));
      for (const seed of seeds) {
        const utility = values.map((own) => own.get(seed));
        utility.forEach((value, own) => {
          if (!Number.isFinite(value)) {
            places[own].rank += members.length / seeds.length;
            places[own].failing += 1;
            return;
          }
          let above = 0, equal = -1;
          for (const other of utility) {
            if (other > value && other < Infinity) above += 1;
            else if (other === value) equal += 1;
          }
          places[own].rank += (1 + above + equal / 2) / seeds.length;
          places[own].beaten += (members.length - 1 - above - equal / 2) / (members.length - 1) / seeds.length;
        });
      }
      for (const place of places) {
        ranks.rank[place.row] = place.rank;
        ranks.among.set(place.row, members.length);
      }
      ranks.groups.push({ cohort: cohortOf[members[0]], places, seeds: seeds.length });
    }
    return ranks;
  };

  // The mean over datasets of the mean over their groups; `weights` says how often each was drawn.
  const meanRank = (groups, weights) => {
    const sums = new Map();
    groups.forEach(([cohort, rank], place) => {
      if (!weights[place]) return;
      const own = sums.get(cohort) ?? sums.set(cohort, [0, 0]).get(cohort);
      own[0] += weights[place] * rank;
      own[1] += weights[place];
    });
    let total = 0;
    for (const [sum, count] of sums.values()) total += sum / count;
    return total / sums.size;
  };
  const generator = (seed) => () => {
    // Mulberry32: the same numbers on every load.
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  const quantile = (sorted, share) => {
    const place = share * (sorted.length - 1), low = Math.floor(place), high = Math.ceil(place);
    return sorted[low] + (place - low) * (sorted[high] - sorted[low]);
  };
  // Datasets are drawn again where there are enough of them, otherwise groups.
  const standingsOf = (groups) => {
    const cohorts = Array.from(new Set(groups.map((group) => group.cohort)));
    const byDataset = cohorts.length >= FEWEST, units = byDataset ? cohorts.length : groups.length;
    const found = new Map();
    groups.forEach((group, number_) => {
      for (const place of group.places) {
        const entrant = entrantOf[place.row];
        if (!found.has(entrant)) found.set(entrant, { entrant, groups: [], numbers: [], beaten: [], among: [], cells: 0, failing: 0 });
        const own = found.get(entrant);
        own.groups.push([group.cohort, place.rank]);
        own.beaten.push([group.cohort, place.beaten]);
        own.among.push([group.cohort, group.places.length]);
        own.numbers.push(byDataset ? cohorts.indexOf(group.cohort) : number_);
        own.cells += group.seeds;
        own.failing += place.failing;
      }
    });
    const draws = [], random = generator(1);
    for (let turn = 0; units >= FEWEST && turn < RESAMPLES; turn += 1) {
      const weights = new Uint16Array(units);
      for (let drawn = 0; drawn < units; drawn += 1) weights[Math.floor(random() * units)] += 1;
      draws.push(weights);
    }
    const tail = data.tails[Math.min(units, data.tails.length - 1)];
    for (const own of found.values()) {
      const once = own.groups.map(() => 1);
      own.mean = meanRank(own.groups, once);
      own.share = meanRank(own.beaten, once);
      own.company = meanRank(own.among, once);
      own.datasets = new Set(own.groups.map(([cohort]) => cohort)).size;
      // Of a dataset that is drawn twice both its groups and their number double: a draw of
      // datasets weighs their means, not their groups.
      const sample = byDataset ? Array.from(new Set(own.numbers), (unit) => {
        const inside = own.groups.filter((_, place) => own.numbers[place] === unit);
        return [unit, meanRank(inside, inside.map(() => 1))];
      }) : null;
      const means = draws.map((weights) => {
        if (!sample) return meanRank(own.groups, own.numbers.map((unit) => weights[unit]));
        let sum = 0, count = 0;
        for (const [unit, mean] of sample) { sum += weights[unit] * mean; count += weights[unit]; }
        return sum / count;
      }).filter((mean) => mean === mean).sort((a, b) => a - b);
      own.low = means.length ? quantile(means, tail) : NaN;
      own.high = means.length ? quantile(means, 1 - tail) : NaN;
    }
    const order = Array.from(found.values()).sort((a, b) => a.mean - b.mean || a.entrant - b.entrant);
    return { order, datasets: cohorts.length, unit: units < FEWEST ? "" : byDataset ? "datasets" : "groups" };
  };

  // ---- Drawing.
  let shown = [], ranks = null, drawn = 0;
  const named = (entrant) => {
    const parts = [link(data.entrants[entrant], data.methodPaths[entrant])], reference = data.references[entrant];
    return reference ? [...parts, " ", make("span", reference, "tag")] : parts;
  };
  const utilityOf = (row, part) => (metricOf(row) ? read(data.utility[metricOf(row)], part)[row] : NaN);
  const failedShare = (row) => fact("failed")[row] / (fact("failed")[row] + fact("finished")[row]);
  const sortValue = (name, row) => {
    const metric = columns.get(name).dataset.metric;
    if (metric !== undefined) return read(data.measures[metric], "value")[row];
    switch (name) {
      case "method": return data.entrants[entrantOf[row]];
      case "dataset": return data.cohorts[cohortOf[row]];
      case "size": return sizeOf[row];
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
    const metric = metricOf(row), name = `${cohortOf[row]} ${metric}`;
    if (!scales.has(name)) {
      const ends = [Infinity, -Infinity], values = read(data.utility[metric], "value");
      for (let other = 0; other < COUNT; other += 1) {
        if (cohortOf[other] !== cohortOf[row] || !Number.isFinite(values[other])) continue;
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
    const value = read(own, "value")[row], limit = read(own, "limit")[row];
    const inside = between(read(own, "low")[row], read(own, "high")[row]), deviation = read(own, "deviation")[row];
    if (inside) parts.push(make("small", inside));
    if (deviation === deviation) parts.push(make("small", `seeds sd ${number(deviation)}`));
    return { value, limit };
  };
  const metricCell = (cell, metric, row) => {
    const own = data.measures[metric], parts = [], { value, limit } = measured(own, row, parts);
    if (value === value && limit === limit) {
      const kept = data.directions[metric] === "higher" ? value >= limit : value < limit;
      parts.push(make("small", `${kept ? "within" : "beyond"} ${number(limit)}`, kept ? "" : "bad", "the acceptance threshold of the paper that defines it"));
    }
    const remark = own.remark ? data.texts[read(own, "remark")[row]] : "";
    if (remark) parts.push(make("small", remark.split(":")[0], "", remark));
    cell.classList.toggle("empty", value !== value && !remark);
    cell.append(number(value), ...parts);
  };
  const fill = {
    method(cell, row) {
      const open = make("button", "", "open");
      open.type = "button";
      open.setAttribute("aria-expanded", "false");
      open.setAttribute("aria-label", `Details of ${data.entrants[entrantOf[row]]} on ${data.cohorts[cohortOf[row]]}`);
      open.addEventListener("click", () => toggle(open, row));
      cell.append(open, ...named(entrantOf[row]));
      if (fact("study")[row]) cell.append(" ", make("span", "study only", "stamp", "Seeded noise: no conclusion about letting this release out may be drawn"));
    },
    dataset(cell, row) {
      cell.append(link(data.cohorts[cohortOf[row]], data.datasetPaths[cohortOf[row]]));
      for (const more of [data.cohortTasks[cohortOf[row]], text("variant", row)]) if (more) cell.append(make("small", more, "wraps"));
    },
    size: (cell, row) => cell.append(sizeText(data.sizes[sizeOf[row]])),
    target: (cell, row) => cell.append(epsilonText(row) || ABSENT),
    verdict(cell, row) {
      const verdict = text("verdict", row), kind = data.kinds[kindOf[row]].replace(",", "").replace(" ", "-");
      cell.append(make("span", verdict || "no verdict", `badge ${kind || "none"}`));
      if (text("warned", row)) cell.append(" ", make("span", "⚠", "warn", text("warned", row)));
      cell.append(make("small", text("why", row) || (verdict ? "no reason given" : "no cell finished"), "why", text("why", row)));
    },
    rank(cell, row) {
      const among = ranks.among.get(row);
      if (among) cell.append(make("strong", String(Number(ranks.rank[row].toPrecision(3)))), ` of ${among}`);
      else cell.append(make("small", `not ranked: ${ranks.reason.get(row)}`, "wraps"));
    },
    utility(cell, row) {
      const metric = metricOf(row), value = utilityOf(row, "value");
      if (value !== value) return cell.append(ABSENT, make("small", metric ? `no ${metric}` : ranks.reason.get(row) ?? "", "wraps"));
      cell.append(make("strong", number(value)), ` ${between(utilityOf(row, "low"), utilityOf(row, "high"))}`, scaled(row));
      cell.append(make("small", `${metric} ${arrow(metric)}`, "metric"));
      const least = utilityOf(row, "least");
      if (least === least) cell.append(make("small", `${utilityOf(row, "count")} seeds: ${number(least)} to ${number(utilityOf(row, "largest"))}`));
    },
    ratio(cell, row) {
      cell.append((utilityOf(row, "derived") === 1 ? "≈ " : "") + number(utilityOf(row, "ratio")));
      const inside = between(utilityOf(row, "ratioLow"), utilityOf(row, "ratioHigh"));
      if (inside) cell.append(make("small", inside));
    },
    deviation: (cell, row) => cell.append(number(utilityOf(row, "deviation"))),
    failed(cell, row) {
      const failed = fact("failed")[row], skipped = fact("skipped")[row], tried = failed + fact("finished")[row];
      if (tried) cell.append(make("strong", percent(failed, tried), failed ? "bad" : ""), make("small", `${failed} of ${tried} cells`));
      if (skipped) cell.append(make("small", `${skipped} skipped`));
    },
    fit: (cell, row) => cell.append(seconds(fact("fit")[row])),
    memory: (cell, row) => cell.append(whole(fact("memory")[row])),
    released: (cell, row) => cell.append(span(fact("releasedLow")[row], fact("released")[row], whole)),
  };
  for (const name of ["claimed", "proven", "audited"]) {
    fill[name] = (cell, row) => cell.append(span(fact(`${name}Low`)[row], fact(name)[row], short));
  }
  const toggle = (button, row) => {
    const line = button.closest("tr"), opened = button.getAttribute("aria-expanded") === "true";
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
  const line = (row) => {
    const reference = referenceOf(row).replace(" ", "-"), lost = !fact("finished")[row] && fact("failed")[row];
    const own = make("tr", "", `${reference}${reference ? " reference" : ""}${lost ? " unfinished" : ""}`);
    for (const head of heads) {
      const { column, metric } = head.dataset, cell = make(column === "method" ? "th" : "td", "", column === "method" ? "pin" : `num ${metric === undefined ? column : "extra"}`);
      if (column === "method") cell.scope = "row";
      cell.dataset.label = head.textContent;
      if (metric === undefined) fill[column](cell, row);
      else metricCell(cell, metric, row);
      own.append(cell);
    }
    return own;
  };
  const drawMore = () => {
    table.tBodies[0].append(...shown.slice(drawn, drawn + PAGE).map(line));
    drawn = Math.min(shown.length, drawn + PAGE);
    byId("more").hidden = drawn >= shown.length;
    byId("more").textContent = `Show ${Math.min(PAGE, shown.length - drawn)} more of ${shown.length - drawn}`;
    byId("shown").textContent = `${shown.length.toLocaleString("en")} of ${COUNT.toLocaleString("en")} rows`;
  };
  const drawStandings = () => {
    const { order, datasets, unit } = standingsOf(ranks.groups), body = byId("standings").tBodies[0];
    const value = (content, key, kind = "") => {
      const cell = make("td", content, `num ${kind}`);
      cell.dataset.value = key === key ? key : "";
      return cell;
    };
    body.replaceChildren(...order.map((own) => {
      const head = make("th", "", "pin"), row = make("tr", "", data.references[own.entrant] ? "reference" : "");
      const fewer = own.groups.length < ranks.groups.length ? "bad" : "";
      head.scope = "row";
      head.dataset.value = data.entrants[own.entrant];
      head.append(...named(own.entrant));
      row.append(head, value(own.mean.toFixed(2), own.mean, "lead"), value(own.low === own.low ? `[${own.low.toFixed(2)}, ${own.high.toFixed(2)}]` : ABSENT, own.low),
        value(String(Number(own.company.toPrecision(3))), own.company), value(percent(own.share, 1), own.share), value(`${own.datasets} of ${datasets}`, own.datasets),
        value(`${own.groups.length} of ${ranks.groups.length}`, own.groups.length, fewer), value(whole(own.cells), own.cells), value(percent(own.failing, own.cells), own.failing / own.cells, own.failing ? "bad" : ""));
      return row;
    }));
    mark(headsOf(byId("standings")), null);
    byId("standings").parentElement.hidden = !order.length;
    byId("nobody").hidden = order.length > 0;
    byId("ranking-scope").textContent = unit ? `Intervals: ${RESAMPLES} bootstrap draws of the ${unit}.` : "Too few groups for an interval.";
  };
  const drawReferences = () => {
    const kinds = ["ceiling", "real sample", "floor"], found = new Map();
    for (const row of shown) {
      if (!found.has(cohortOf[row])) found.set(cohortOf[row], { metric: metricOf(row), values: kinds.map(() => []) });
      const value = utilityOf(row, "value"), kind = kinds.indexOf(referenceOf(row));
      if (kind >= 0 && value === value) found.get(cohortOf[row]).values[kind].push(value);
    }
    const rows = Array.from(found.entries()).sort((a, b) => a[0] - b[0]).map(([cohort, { metric, values }]) => {
      const head = make("th"), row = make("tr");
      head.scope = "row";
      head.append(link(data.cohorts[cohort], data.datasetPaths[cohort]));
      row.append(head, make("td", metric ? `${metric} ${arrow(metric)}` : ABSENT));
      for (const own of values) row.append(make("td", own.length ? span(Math.min(...own), Math.max(...own), number) : ABSENT, "num"));
      return row;
    });
    byId("references").tBodies[0].replaceChildren(...rows);
  };
  const render = () => {
    readState();
    shown = shownRows();
    ranks = rankRows(shown);
    drawStandings();
    drawReferences();
    if (state.sort) {
      const keys = new Map(shown.map((row) => [row, sortValue(state.sort, row)])), sign = state.descending ? -1 : 1;
      shown.sort((a, b) => compare(keys.get(a), keys.get(b), sign) || a - b);
    }
    mark(heads, columns.get(state.sort), state.descending);
    table.tBodies[0].replaceChildren();
    drawn = 0;
    drawMore();
    const selected = selects.some((select) => select.value !== "") || state.methods.size > 0;
    byId("better-scope").hidden = !selected;
  };

  data.rows.detail = data.rows.detail.split(",");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => writeState(event.target === sorter ? sorter.value : sortNow()));
  byId("more").addEventListener("click", drawMore);
  byId("reset").addEventListener("click", () => { form.reset(); writeState(""); });
  byId("all-methods").addEventListener("click", () => { for (const box of choosable) box.checked = false; writeState(sortNow()); });
  for (const [name, head] of columns) {
    head.querySelector("button").addEventListener("click", () => {
      const descending = state.sort === name ? !state.descending : head.dataset.first === "descending";
      writeState((descending ? "-" : "") + name);
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
  window.addEventListener("hashchange", render);
  render();
})();
