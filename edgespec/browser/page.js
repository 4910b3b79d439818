"use strict";

// Nothing that an answer says can be clicked: the terminal would open whatever looks like an address.
window.open = () => null;

// Whoever opens the page can write at once. The terminal says that it has the focus over its socket, so not before.
document.addEventListener("DOMContentLoaded", () => {
  const watcher = new MutationObserver(() => {
    if (document.body.classList.contains("-loaded")) {
      watcher.disconnect();
      document.querySelector(".xterm-helper-textarea").focus();
    }
  });
  watcher.observe(document.body, { attributes: true, attributeFilter: ["class"] });
});
