// What the page shows, read from its data block and its address.
// Rows at first, and at each further turn; cards of a narrow page are tall, so fewer.
const NARROW = matchMedia("(max-width: 760px)").matches, [FIRST, MORE] = NARROW ? [30, 30] : [40, 100];
const block = byId("data");
const data = JSON.parse(block.textContent);
// A column is split when one of its values is first read, and converted to numbers when all are.
const toNumber = (text) => (text === "" ? NaN : Number(text));
const at = (holder, name, row) => {
  if (typeof holder[name] === "string") holder[name] = holder[name].split(",");
  return Array.isArray(holder[name]) ? toNumber(holder[name][row]) : holder[name]?.[row] ?? NaN;
};
const read = (holder, name) => {
  if (typeof holder[name] === "string") holder[name] = holder[name].split(",");
  if (Array.isArray(holder[name])) holder[name] = Float64Array.from(holder[name], toNumber);
  return holder[name] ?? (holder[name] = new Float64Array(COUNT).fill(NaN));
};
const COUNT = data.rows.label.split(",").length;
const fact = (name) => read(data.rows, name);
const labelOf = fact("label"), datasetOf = fact("dataset"), ipcOf = fact("ipc"), targetOf = fact("target");
const kindOf = fact("kind"), groupOf = fact("group"), barredOf = fact("barred"), tunedOf = fact("tuned");
const text = (name, row) => data.texts[fact(name)[row]];
const referenceOf = (row) => data.references[labelOf[row]];

// ---- Numbers as everywhere on the site: `show.py` has the same. Numbers of rows come as they are
// printed; means are rounded like its `fixed`, without the rounding errors of a sum.
const fixed = (value, digits) => Number(value.toFixed(9)).toFixed(digits);
const share = (value) => (value === value ? `${fixed(value, 1)}%` : ABSENT);
const upToTwo = (value) => String(Number(fixed(value, 2)));
const number = (value) => {
  if (value !== value) return ABSENT;
  const size = Math.abs(value);
  if (size === Infinity) return value > 0 ? "∞" : "-∞";
  if (size === 0 || (size >= 0.001 && size < 100)) return value.toFixed(3);
  return size >= 100 && size < 1e6 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
};
const deviated = (value) => (value > 0 && value < 0.001 ? (value >= 0.0005 ? fixed(value, 3) : "<0.001") : number(value));
const short = (value) => (value !== value ? ABSENT : value === Infinity ? "∞" : String(Number(value.toPrecision(4))));
const whole = (value) => (value !== value ? ABSENT : Math.round(value).toLocaleString("en"));
const seconds = (value) => (value !== value ? ABSENT : value < 9.95 ? value.toFixed(1) : whole(value));
const span = (low, high, write) => (write(low) === write(high) ? write(high) : `${write(low)} to ${write(high)}`);
const between = (low, high) => (low === low && high === high ? `[${number(low)}, ${number(high)}]` : "");
// As `show.percent`: what is not zero is not printed as zero, what is not all not as all.
const percent = (part, all) => {
  const text = fixed((100 * part) / all, 0);
  return part > 0 && text === "0" ? "<1%" : part < all && text === "100" ? ">99%" : `${text}%`;
};
const ipcText = (ipc) => ({ full: "full size", own: "own size" })[ipc] ?? ipc;
const arrow = (metric) => ({ higher: "↑", lower: "↓" })[data.directions[metric]] ?? "·";
const make = (tag, content = "", kind = "", title = "") => {
  const element = document.createElement(tag);
  if (content !== "") element.textContent = content;
  if (kind) element.className = kind;
  if (title) element.title = title;
  return element;
};
// Says which quantity an element prints: equal ones are printed equal on all pages.
const quantity = (element, ...parts) => {
  element.dataset.quantity = parts.join("|");
  return element;
};
const ofRow = (element, row, aggregate, metric = "") =>
  quantity(element, data.labels[labelOf[row]], data.datasets[datasetOf[row]], data.ipcs[ipcOf[row]], epsilonText(row), text("variant", row), metric, aggregate);
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
const tunedToo = byId("tuned-too");
let state = {};
const readState = () => {
  const asked = new URLSearchParams(location.hash.slice(1));
  const now = { methods: new Set(), sort: "", descending: false };
  for (const select of selects) {
    const known = asked.has(select.name) && Array.from(select.options).some((o) => o.value === `=${asked.get(select.name)}`);
    now[select.name] = known ? asked.get(select.name) : null;
    select.value = known ? `=${asked.get(select.name)}` : "";
  }
  now.tuned = asked.get("tuned") === "1" && tunedToo !== null;
  if (tunedToo) tunedToo.checked = now.tuned;
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
  if (tunedToo && tunedToo.checked) asked.append("tuned", "1");
  if (sort) asked.append("sort", sort);
  // An empty one would scroll to the top.
  location.hash = asked.toString() || "all";
};
const sortNow = () => (state.sort ? (state.descending ? "-" : "") + state.sort : "");
