import { LitElement } from 'lit';

/**
 * An element without a shadow root: the page has one style sheet, and labels may refer to anything on the page. Its
 * properties are named in `static properties` and declared without a value, because a class field would hide the
 * accessor that Lit makes.
 */
export class LightElement extends LitElement {
  protected override createRenderRoot(): HTMLElement {
    return this;
  }

  /** Dispatches an event that the elements above hear. */
  protected tell(name: string, detail?: unknown): void {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true }));
  }
}
