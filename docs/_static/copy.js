// A button on each block of code. It copies what a reader types: from a console the commands,
// without `$ ` and outputs; from a shell no comments, which zsh refuses at its prompt.
// A block that shows only output has no button.
const PROMPT = { console: /^\$ /, pycon: /^(>>>|\.\.\.) ?/ };

const typed = (block) => {
  const { language } = block.dataset;
  const prompt = PROMPT[language] ?? /^/;
  const lines = block.querySelector("pre").textContent.trimEnd().split("\n");
  const isTyped = (i) =>
    prompt.test(lines[i]) ||
    (language === "console" && lines[i - 1]?.endsWith("\\") && isTyped(i - 1));
  const comment = ["console", "sh"].includes(language) ? /\s{2,}# .*$/ : /$/;
  return lines
    .filter((_, i) => isTyped(i))
    .map((line) => line.replace(prompt, "").replace(comment, ""))
    .join("\n");
};

document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll('div[class*="highlight-"]')) {
    block.dataset.language = block.className.match(/highlight-(\S+)/)[1];
    if (block.dataset.language === "text" || !navigator.clipboard) continue;
    const button = block.appendChild(document.createElement("button"));
    Object.assign(button, { type: "button", className: "copy", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(typed(block));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
  }
});
