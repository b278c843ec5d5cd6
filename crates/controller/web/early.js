// What must be before the first paint: the chosen theme, and the question whose answer the page needs first.
(() => {
  try {
    const theme = localStorage.getItem("fibula-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* Storage is off: the system's theme. */ }
  window.fibulaFirst = fetch("/ui/network", { cache: "no-store" });
  window.fibulaFirst.catch(() => {}); // feed.js says that it failed.
})();
