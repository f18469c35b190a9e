// Applies the chosen theme before the first paint: "light", "dark" or "" (the system's).
(function () {
  let chosen = "";
  try {
    chosen = localStorage.getItem("theme") || "";
  } catch {
    // a browser without storage has the system's theme
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
