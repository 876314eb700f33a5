import { html, type TemplateResult } from 'lit';
import { printableLines } from '../../functions/base/printable.ts';
import { ICONS } from './icons.ts';
import { LightElement } from './light-element.ts';

/** How long the button says that it has copied, in milliseconds. */
const COPIED_MS = 2_000;

/** Copies a text, and says so. What a terminal would obey when the text is pasted is copied as an escape. */
export class CopyButton extends LightElement {
  static override readonly properties = {
    text: { attribute: false },
    label: { attribute: false },
    isCopied: { state: true },
  };
  declare text: string;
  /** What is copied, for people who do not see what the button stands beside. */
  declare label: string;
  declare isCopied: boolean;

  protected override render(): TemplateResult {
    return html`<button type="button" class="quiet small" @click=${this.#copy}>
      ${ICONS.copy} ${this.isCopied ? 'Copied' : 'Copy'}<span class="visually-hidden"> ${this.label}</span>
    </button>`;
  }

  #copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(printableLines(this.text));
    } catch {
      this.tell('say', 'The browser does not allow copying. Select the text instead.');
      return;
    }
    this.isCopied = true;
    this.tell('say', `Copied ${this.label}`);
    setTimeout(() => {
      this.isCopied = false;
    }, COPIED_MS);
  };
}

customElements.define('copy-button', CopyButton);
