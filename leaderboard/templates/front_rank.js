// Which rows are shown, and ranks among them.
// ---- Which rows are shown. References stay: dataset and task alone can hide them, and another
// IPC or epsilon where they have one. A failed cell has no verdict: it stays with its method.
const metricOf = (row) => (state.model === null ? data.headlines : data.models[state.model])[datasetOf[row]];
const epsilonText = (row) => (targetOf[row] !== targetOf[row] ? "" : short(data.targets[targetOf[row]]));
const inPlace = (row) => {
  const reference = referenceOf(row) !== "", ipc = data.ipcs[ipcOf[row]];
  if (state.dataset !== null && data.datasets[datasetOf[row]] !== state.dataset) return false;
  if (state.task !== null && data.datasetTasks[datasetOf[row]] !== state.task) return false;
  if (state.ipc !== null && ipc !== state.ipc && !(reference && /\D/.test(ipc))) return false;
  if (state.eps !== null && epsilonText(row) !== state.eps && !(reference && epsilonText(row) === "")) return false;
  return reference || !state.methods.size || state.methods.has(data.labels[labelOf[row]]);
};
const shownRows = () => {
  const found = [];
  for (let row = 0; row < COUNT; row += 1) if (inPlace(row)) found.push(row);
  if (state.verdict === null) return found;
  const fits = (row) => data.kinds[kindOf[row]] === state.verdict;
  // Also where it finished nowhere within the rest of the choice.
  const own = new Set();
  for (let row = 0; row < COUNT; row += 1) if (fits(row)) own.add(labelOf[row]);
  return found.filter((row) => fits(row) || referenceOf(row) || (data.kinds[kindOf[row]] === "" && own.has(labelOf[row])));
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
    if (tunedOf[row] && !state.tuned && !barredOf[row]) ranks.reason.set(row, data.chosenHere);
    else if (barredOf[row] || !metricOf(row)) {
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
    ranks.groups.push({ dataset: datasetOf[members[0]], places, seeds: seeds.length });
  }
  return ranks;
};

// ---- Aggregates over groups, as `quantities.py` defines them.
const byDataset = (pairs) => {
  const found = new Map();
  for (const [dataset, value] of pairs) found.set(dataset, [...(found.get(dataset) ?? []), value]);
  return Array.from(found.values(), (values) => average(values));
};
const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const overDatasets = (pairs) => average(byDataset(pairs));
// Student's interval of the means of the datasets; none for few of them.
const rankInterval = (means, last) => {
  if (means.length < data.fewest) return [NaN, NaN];
  const middle = average(means), squares = means.reduce((sum, mean) => sum + (mean - middle) ** 2, 0);
  const quantile = data.student[Math.min(means.length, data.student.length - 1)];
  const reach = (quantile * Math.sqrt(squares / (means.length - 1))) / Math.sqrt(means.length);
  return [Math.max(1, middle - reach), Math.min(last, middle + reach)];
};
const standingsOf = (groups) => {
  const datasets = new Set(groups.map((group) => group.dataset)).size, found = new Map();
  const sized = new Set(groups.flatMap((group) => group.places.filter((place) => data.ipcs[ipcOf[place.row]] !== data.ownSize).map((place) => labelOf[place.row])));
  const last = Math.max(1, ...groups.map((group) => group.places.length));
  for (const group of groups) {
    for (const place of group.places) {
      const label = labelOf[place.row];
      if (!found.has(label)) found.set(label, { label, groups: [], beaten: [], among: [], cells: 0, failing: 0 });
      const own = found.get(label);
      own.groups.push([group.dataset, place.rank]);
      own.beaten.push([group.dataset, place.beaten]);
      own.among.push([group.dataset, group.places.length]);
      own.cells += group.seeds;
      own.failing += place.failing;
    }
  }
  for (const own of found.values()) {
    own.mean = overDatasets(own.groups);
    own.share = overDatasets(own.beaten);
    own.company = overDatasets(own.among);
    own.datasets = new Set(own.groups.map(([dataset]) => dataset)).size;
    own.apart = 2 * own.datasets < datasets || (sized.size > 0 && !sized.has(own.label));
    [own.low, own.high] = rankInterval(byDataset(own.groups), last);
  }
  const order = Array.from(found.values()).sort((a, b) => a.apart - b.apart || fixed(100 * b.share, 1) - fixed(100 * a.share, 1) || collator.compare(data.labels[a.label], data.labels[b.label]));
  return { order, datasets };
};
