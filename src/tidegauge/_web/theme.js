// Light or dark: as in the system until the user selects one. Runs before the first paint.
"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const key = "tidegauge-theme";

  const read = () => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage may be forbidden: the choice is then valid for this page only
    }
  };
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : system.matches;

  const changed = () => {
    const button = document.getElementById("theme");
    if (button) button.textContent = isDark() ? "Light" : "Dark";
    document.dispatchEvent(new Event("themechange"));
  };

  const chosen = read();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  system.addEventListener("change", changed);
  document.addEventListener("DOMContentLoaded", () => {
    changed();
    document.getElementById("theme").addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem(key, root.dataset.theme);
      } catch {
        // as above
      }
      changed();
    });
  });
})();
