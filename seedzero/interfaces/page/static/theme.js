// Applies a theme, before the first paint the kept one: "light", "dark" or "" (the system's).
function applyTheme(chosen) {
  document.documentElement.dataset.theme = chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}
try {
  applyTheme(localStorage.getItem("theme"));
} catch {
  applyTheme(""); // a browser without storage has the system's theme
}
