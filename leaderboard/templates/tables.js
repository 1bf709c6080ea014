// Tables that can be sorted. Texts of a run are set as text content, never as markup: nothing from
// a run can become code.
const byId = (id) => document.getElementById(id);
const ABSENT = "–";

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
