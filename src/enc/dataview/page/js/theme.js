// Before anything is drawn: the colours that were chosen here before. No module, so that nothing flashes.
try {
  document.documentElement.dataset.theme = localStorage.getItem("enc-theme") || "auto";
} catch {
  document.documentElement.dataset.theme = "auto"; // storage may be forbidden
}
