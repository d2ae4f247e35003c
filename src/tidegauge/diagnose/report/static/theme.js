// Light or dark: as the system has it, until somebody chooses. Runs before anything is painted.
"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const kept = "tidegauge-theme";

  const read = () => {
    try {
      return localStorage.getItem(kept);
    } catch {
      return null; // storage may be forbidden: the choice then holds for this page
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
        localStorage.setItem(kept, root.dataset.theme);
      } catch {
        // as above
      }
      changed();
    });
  });
})();
