"use strict";
// Values are compared and hidden, never written into the page: nothing from a run becomes markup.
(() => {
  const cellValue = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : cell.dataset.value;
  };

  const sortTable = (table, column, descending) => {
    const heads = Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
    const numeric = heads[column].dataset.kind === "number";
    const body = table.tBodies[0];
    const order = Array.from(body.rows).map((row, place) => ({ row, place, value: cellValue(row, column) }));
    const sign = descending ? -1 : 1;
    order.sort((a, b) => {
      // What is absent comes last either way.
      if (a.value === "" || b.value === "") {
        return (a.value === "") - (b.value === "") || a.place - b.place;
      }
      if (!numeric) return sign * a.value.localeCompare(b.value) || a.place - b.place;
      const left = Number(a.value), right = Number(b.value);
      return sign * ((left > right) - (left < right)) || a.place - b.place;
    });
    for (const { row } of order) body.append(row);
    heads.forEach((head, place) => {
      if (place === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const descending = now ? now === "ascending" : head.dataset.first === "descending";
        sortTable(table, column, descending);
      });
    });
  }

  const table = document.getElementById("results");
  if (!table) return;
  const rows = Array.from(table.tBodies[0].rows);
  const filters = Array.from(document.querySelectorAll("[data-filter]"));
  const shown = document.getElementById("shown");
  const apply = () => {
    let count = 0;
    for (const row of rows) {
      row.hidden = !filters.every((f) => f.value === "*" || row.dataset[f.dataset.filter] === f.value);
      if (!row.hidden) count += 1;
    }
    shown.textContent = `${count} of ${rows.length} rows`;
  };
  for (const filter of filters) filter.addEventListener("change", apply);
  document.getElementById("reset").addEventListener("click", () => {
    for (const filter of filters) filter.value = "*";
    apply();
  });
  const sorter = document.getElementById("sorter");
  sorter.addEventListener("change", () => {
    const [column, way] = sorter.value.split(" ");
    if (way) sortTable(table, Number(column), way === "descending");
  });
  apply();
})();
