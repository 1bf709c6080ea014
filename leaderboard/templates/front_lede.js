// The summary: which sound method is best, by how much, with what certainty, and where it falls short.
const joined = (parts, between_ = ", ") => parts.flatMap((part, place) => (place ? [between_, part] : [part])).flat();
const plural = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
// A group in words, as short as what was chosen leaves it.
const where = (row) => {
  const parts = [data.datasets[datasetOf[row]]];
  ranks.sizes ??= new Set(ranks.groups.map((group) => ipcOf[group.places[0].row])).size;
  if (ranks.sizes > 1) parts.push(`${ipcText(data.ipcs[ipcOf[row]])} rows per class`);
  if (state.eps === null && epsilonText(row)) parts.push(`ε ${epsilonText(row)}`);
  return parts.join(", ");
};
const listed = (texts, most = 3) =>
  (texts.length > most ? [...texts.slice(0, most), `${texts.length - most} more`] : texts).join("; ");

// Mean over datasets of the share of the real rows' utility, where the method finished.
const ofReal = (places) => {
  const known = places.filter(([row]) => utilityOf(row, "ratio") === utilityOf(row, "ratio"));
  return known.length ? overDatasets(known.map(([row]) => [datasetOf[row], utilityOf(row, "ratio")])) : NaN;
};
const placesOf = (label) => {
  if (!ranks.places) {
    ranks.places = new Map(data.labels.map((_, own) => [own, []]));
    for (const group of ranks.groups) for (const place of group.places) ranks.places.get(labelOf[place.row]).push([place.row, place, group]);
  }
  return ranks.places.get(label);
};

const tile = (title, main, ...more) => {
  const box = make("div", "", "tile"), big = make("p", "", "answer");
  big.append(...[main].flat());
  box.append(make("h3", title), big, ...more.filter((part) => part.length).map((part) => {
    const line = make("p");
    line.append(...[part].flat());
    return line;
  }));
  return box;
};
const nameOf = (own) => named(own.label);
const winsOf = (own) => quantity(make("span", share(100 * own.share)), data.labels[own.label], "win rate");
const rankOf = (own) => quantity(make("span", fixed(own.mean, 2)), data.labels[own.label], "mean rank");
const intervalOf = (own) => quantity(make("span", own.low === own.low ? `[${fixed(own.low, 2)}, ${fixed(own.high, 2)}]` : ABSENT), data.labels[own.label], "mean rank interval");
const shareOf = (own) => quantity(make("span", share(ofReal(placesOf(own.label)))), data.labels[own.label], "of real");

const bestTile = (order, leaders, datasets) => {
  const [best] = order, inside = best.low === best.low ? [" ", intervalOf(best)] : [];
  const rank = ["Beats ", winsOf(best), " of the others; mean rank ", rankOf(best), ...inside, ` among ${upToTwo(best.company)}, on ${best.datasets} of ${plural(datasets, "dataset")}.`];
  const fewer = best.groups.length < ranks.groups.length ? `Ranked in only ${best.groups.length} of ${plural(ranks.groups.length, "group")}.` : "";
  const tuned = new Set(Array.from(ranks.reason).filter(([, reason]) => reason === data.chosenHere).map(([row]) => labelOf[row]));
  // Who met fewer others, or easier data, cannot be called the best of all.
  const one = fewer || tuned.size ? "Highest win rate" : "Best sound method";
  return tile(leaders.length > 1 ? "Best sound methods: a tie" : one, joined(leaders.map(nameOf)), rank, fewer,
    leaders.some((own) => data.references[own.label] === "floor") ? "No method ranked here is better than the floor." : "",
    tuned.size ? `Not ranked where their defaults were chosen: ${plural(tuned.size, "sound method")}.` : "");
};
const marginTile = (order, leaders) => {
  const own = ofReal(placesOf(order[0].label)), finished = (one) => (one.failing ? " where it finished" : "");
  const others = order.filter((other) => !leaders.includes(other)), shown_ = [...leaders.slice(1, 3), ...others.slice(0, 1)];
  const floor = others.find((other) => data.references[other.label] === "floor");
  if (floor && !shown_.includes(floor)) shown_.push(floor);
  const lines = shown_.map((other) => {
    const kind = leaders.includes(other) ? "Tied" : other === floor ? "Floor" : "Next", known = ofReal(placesOf(other.label));
    // The number of the table below, which is a mean over other groups where it was ranked in others.
    const where_ = other.groups.length === order[0].groups.length ? "" : `, in ${plural(other.groups.length, "group")}`;
    return [`${kind}: `, ...nameOf(other).slice(0, 1), " ", ...(known === known ? [shareOf(other), finished(other), where_] : ["mean rank ", rankOf(other)]), "."];
  });
  if (own !== own) return tile("By how much?", "unknown", "The utility of the real rows is not available.", ...lines);
  return tile("By how much?", [shareOf(order[0]), " of real"], `Utility divided by that of the real rows, mean over datasets${finished(order[0])}.`, ...lines);
};
const sureTile = (order, leaders, selected) => {
  const [best] = order, next = order.find((other) => !leaders.includes(other)), test = data.tests.find((own) => own.places[best.label]);
  let lead = [];
  if (next) {
    const theirs = new Map(placesOf(next.label).map(([row, place]) => [groupOf[row], place.rank]));
    const met = placesOf(best.label).filter(([row]) => theirs.has(groupOf[row]));
    const won = met.filter(([row, place]) => place.rank < theirs.get(groupOf[row])).length;
    const level = met.filter(([row, place]) => place.rank === theirs.get(groupOf[row])).length;
    lead = [`Better than `, ...nameOf(next).slice(0, 1), ` in ${won} of ${plural(met.length, "group")}${level ? `, tied in ${level}` : ""}.`];
  }
  // Where no test speaks, the intervals of the mean ranks do, more roughly.
  const near = order.filter((other) => !leaders.includes(other) && other.low <= best.high).map((other) => named(other.label).slice(0, 1));
  const overlap = best.low !== best.low ? [`Fewer than ${data.fewest} datasets: no interval over datasets.`] : near.length
    ? ["Over datasets, the interval of its mean rank overlaps with that of ", ...joined(near.slice(0, 4)), near.length > 4 ? ` and ${near.length - 4} more.` : "."]
    : ["Over datasets, the interval of its mean rank overlaps with no other."];
  const untested = best.low === best.low && !near.length ? "likely" : "not tested";
  const paired = data.paired[best.label] ?? [];
  if (paired.length) {
    const groups = paired.reduce((sum, own) => sum + own[3], 0), won = paired.reduce((sum, own) => sum + own[1], 0);
    const open = paired.filter((own) => own[1] < own[3]), main = !open.length ? "significant" : won ? "partly significant" : "not significant";
    const rest = open.length ? ["Not distinguished everywhere from ", ...joined(open.slice(0, 4).map((own) => [...named(own[0]).slice(0, 1), ` (${own[1]} of ${own[3]})`])), "."] : [];
    return tile("Is the lead significant?", main, `Over test rows, paired: better in ${won} of ${plural(groups, "comparison")} with ${plural(paired.length, "other")}.`, rest.flat(),
      "One dataset: nothing follows for other datasets.", selected ? "The tests cover all sound methods, not this selection." : "");
  }
  if (selected) return tile("Is the lead significant?", untested, lead, overlap, "The tests below cover all sound methods, not this selection.");
  if (!test) return tile("Is the lead significant?", untested, lead, overlap, "Not tested: too few groups in common with the other methods.");
  const rivals = Object.keys(test.places).map(Number).filter((other) => other !== best.label);
  const open = rivals.filter((other) => !test.better[best.label].includes(other));
  const main = !open.length ? "significant" : open.length === rivals.length ? "not significant" : "partly significant";
  const tied = open.length ? [["Statistically indistinguishable from ", ...joined(open.slice(0, 4).map((other) => named(other).slice(0, 1))), open.length > 4 ? ` and ${open.length - 4} more.` : "."]] : [];
  return tile("Is the lead significant?", main, open.length ? "" : `Better than ${rivals.length > 1 ? `each of the ${rivals.length} others` : "the other"} in paired tests over groups.`, ...tied.flat(0), lead, "Uncertainty: that of the choice of datasets and budgets, seeds averaged.");
};
const shortTile = (order, leaders) => {
  const [best] = order, own = placesOf(best.label);
  // Better is only what is printed better: the rank of each seed and the mean over seeds agree.
  const gain = (row) => (data.directions[metricOf(row)] === "lower" ? -1 : 1) * utilityOf(row, "value");
  const beats = (other, place) => other.rank < place.rank && !(gain(other.row) <= gain(place.row));
  const lost = own.filter(([, place, group]) => group.places.some((other) => beats(other, place))).map(([row]) => where(row));
  const level = own.some(([, place, group]) => group.places.some((other) => other !== place && other.rank === place.rank));
  const behind = own.filter(([row]) => {
    const floor = fact("floor")[row];
    if (floor !== floor || labelOf[floor] === best.label) return false;
    return gain(row) < gain(floor);
  }).map(([row]) => where(row));
  const weakest = own.filter(([row]) => utilityOf(row, "ratio") === utilityOf(row, "ratio"))
    .sort((a, b) => utilityOf(a[0], "ratio") - utilityOf(b[0], "ratio"))[0];
  const main = best.failing ? `${percent(best.failing, best.cells)} of cells fail` : lost.length ? `${lost.length} of ${plural(own.length, "group")} lost` : "nowhere";
  return tile(leaders.length > 1 ? `Where does ${data.labels[best.label]} fall short?` : "Where does it fall short?", main,
    lost.length ? `Another method is better on ${listed(lost)}.` : `First${level ? " or tied" : ""} in ${own.length === 1 ? "its group" : `all ${plural(own.length, "group")}`}.`,
    behind.length ? `Below the floor on ${listed(behind)}.` : "",
    weakest ? [`Lowest on ${where(weakest[0])}: `, ofRow(make("span", share(utilityOf(weakest[0], "ratio"))), weakest[0], "of real", metricOf(weakest[0])), " of real."] : "");
};

// All methods shown by the worst verdict that each has.
const drawVerdicts = () => {
  const worst = new Map();
  for (const row of shown) {
    const kind = kindOf[row], before = worst.get(labelOf[row]);
    if (before === undefined || data.kinds[before] === "" || (data.kinds[kind] !== "" && kind > before)) worst.set(labelOf[row], kind);
  }
  const last = (kind) => (data.kinds[kind] === "" ? data.kinds.length : kind);
  const kinds = Array.from(data.kinds.keys()).sort((a, b) => last(a) - last(b));
  byId("verdicts").replaceChildren(...kinds.flatMap((kind) => {
    const name = data.kinds[kind];
    const own = Array.from(worst.keys()).filter((label) => worst.get(label) === kind);
    if (!own.length) return [];
    const item = make("li");
    item.append(badge(name, name || "none finished"), " ", ...joined(own.slice(0, 12).map(named)), own.length > 12 ? ` and ${own.length - 12} more` : "");
    return [item];
  }));
};
const drawLede = ({ order, datasets }, selected) => {
  const leaders = order.filter((own) => fixed(100 * own.share, 1) === fixed(100 * order[0].share, 1) && own.groups.length === order[0].groups.length && own.apart === order[0].apart);
  byId("lede").hidden = !order.length;
  if (order.length) {
    byId("tiles").replaceChildren(bestTile(order, leaders, datasets), marginTile(order, leaders),
      sureTile(order, leaders, selected), shortTile(order, leaders));
  }
  drawVerdicts();
};
