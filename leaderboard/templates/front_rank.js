// Which rows are shown, and ranks among them.
const RESAMPLES = 1000, FEWEST = 5;
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
    ranks.groups.push({ dataset: datasetOf[members[0]], places, seeds: seeds.length });
  }
  return ranks;
};

// The mean over datasets of the mean over their groups; `weights` says how often each was drawn.
const meanRank = (groups, weights) => {
  const sums = new Map();
  groups.forEach(([dataset, rank], place) => {
    if (!weights[place]) return;
    const own = sums.get(dataset) ?? sums.set(dataset, [0, 0]).get(dataset);
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
  const datasets = Array.from(new Set(groups.map((group) => group.dataset)));
  const byDataset = datasets.length >= FEWEST, units = byDataset ? datasets.length : groups.length;
  const found = new Map();
  groups.forEach((group, number_) => {
    for (const place of group.places) {
      const label = labelOf[place.row];
      if (!found.has(label)) found.set(label, { label, groups: [], numbers: [], beaten: [], among: [], cells: 0, failing: 0 });
      const own = found.get(label);
      own.groups.push([group.dataset, place.rank]);
      own.beaten.push([group.dataset, place.beaten]);
      own.among.push([group.dataset, group.places.length]);
      own.numbers.push(byDataset ? datasets.indexOf(group.dataset) : number_);
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
    own.datasets = new Set(own.groups.map(([dataset]) => dataset)).size;
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
  const order = Array.from(found.values()).sort((a, b) => a.mean - b.mean || a.label - b.label);
  return { order, datasets: datasets.length, unit: units < FEWEST ? "" : byDataset ? "datasets" : "groups" };
};
