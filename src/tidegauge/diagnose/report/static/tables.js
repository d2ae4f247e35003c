// Tables that are sorted by their headings, and grow while they are scrolled.
"use strict";

const ROWS_AT_ONCE = 100;

/** The columns in which some row has a value. */
const withValues = (columns, rows) =>
  columns.filter(({ value }) => !value || rows.some((row) => !absent(value(row)) && value(row) !== ""));

/**
 * A table in an element.
 * A column has a `title`, `show(row)` (a text or an element) and, to be sorted by, `value(row)`;
 * `number` puts it to the right, `help` says what it means.
 */
class SortedTable {
  constructor(table, columns, { sort = null, descending = false } = {}) {
    this._columns = columns;
    this._sort = sort;
    this._descending = descending;
    this._rows = [];
    this._body = make("tbody");
    this._heads = columns.map((column) => this._heading(column));
    table.replaceChildren(make("thead", { children: [make("tr", { children: this._heads })] }), this._body);
    this._end = make("tr", { class: "end", aria_hidden: "true" });
    new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && this._grow(), {
      root: table.closest(".scroll"),
      rootMargin: "400px",
    }).observe(this._end);
  }

  show(rows) {
    this._rows = [...rows];
    this._arrange();
  }

  _heading(column) {
    const head = make("th", { scope: "col", class: column.number ? "number" : "", title: column.help });
    if (!column.value) head.textContent = column.title;
    else
      head.append(
        make("button", { type: "button", text: column.title, on: { click: () => this._by(column) } }),
      );
    return head;
  }

  _by(column) {
    // Numbers start with the largest.
    this._descending = this._sort === column ? !this._descending : Boolean(column.number);
    this._sort = column;
    this._arrange();
  }

  _arrange() {
    const column = this._sort;
    this._heads.forEach((head, index) => {
      const sorted = this._columns[index] === column;
      if (sorted) head.setAttribute("aria-sort", this._descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    if (column) {
      const sign = this._descending ? -1 : 1;
      const keyed = this._rows.map((row) => [column.value(row), row]);
      keyed.sort(([one], [other]) => {
        if (absent(one) || absent(other)) return absent(one) - absent(other); // the absent come last
        return sign * (typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other);
      });
      this._rows = keyed.map(([, row]) => row);
    }
    this._shown = 0;
    this._body.replaceChildren(this._end);
    this._grow();
  }

  _grow() {
    const next = this._rows.slice(this._shown, this._shown + ROWS_AT_ONCE);
    this._shown += next.length;
    this._end.before(...next.map((row) => this._row(row)));
    this._end.hidden = this._shown >= this._rows.length;
  }

  _row(row) {
    return make("tr", {
      children: this._columns.map((column) => {
        const shown = column.show(row);
        const cell = make("td", { class: column.number ? "number" : "" });
        cell.append(shown);
        return cell;
      }),
    });
  }
}
