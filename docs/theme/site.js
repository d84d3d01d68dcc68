// Names for parts that the theme leaves without one, for those who hear a page.
document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const nav of document.querySelectorAll(".md-code__nav")) nav.setAttribute("role", "presentation");
});
