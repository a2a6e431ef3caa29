// Applies the chosen colours before anything is drawn. Not a module, so that nothing flashes.
try {
  document.documentElement.dataset.theme = localStorage.getItem("enc-theme") || "auto";
} catch {
  document.documentElement.dataset.theme = "auto"; // storage may be forbidden
}
