import { html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import type { Thumbnail } from '../api.ts';
import { LightElement } from './light-element.ts';
import { fetchBytes } from './server.ts';

/** Pictures that are kept in memory. The list fetches an older one again. */
const KEPT_MAX = 300;

/** By the path of the object: the address of its picture in memory. The last one was made last. */
const pictures = new Map<string, string>();
/** The paths of pictures that were asked for, and are not forgotten. */
const asked = new Set<string>();
/** Tells the rows that there is a new picture. */
const made = new EventTarget();

/** Keeps a picture of an object for its row. A model has one once it was shown. */
export function keepThumbnail(path: string, picture: Blob): void {
  forget(path);
  pictures.set(path, URL.createObjectURL(picture));
  for (const oldest of [...pictures.keys()].slice(0, -KEPT_MAX)) forget(oldest);
  made.dispatchEvent(new Event('made'));
}

/** True if the row of an upload can show a picture now. */
export const hasPicture = ({ model = '', picture }: Thumbnail): boolean => picture !== undefined || pictures.has(model);

function forget(path: string): void {
  URL.revokeObjectURL(pictures.get(path) ?? '');
  pictures.delete(path);
  asked.delete(path);
}

/** A small picture of what an upload is about. Empty if there is none. */
export class RowThumbnail extends LightElement {
  static override readonly properties = { thumbnail: { attribute: false }, shown: { state: true } };
  declare thumbnail: Thumbnail | undefined;
  declare shown: string | undefined;

  override connectedCallback(): void {
    super.connectedCallback();
    made.addEventListener('made', this.#take);
    this.#take();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    made.removeEventListener('made', this.#take);
  }

  protected override willUpdate(changed: PropertyValues): void {
    if (!changed.has('thumbnail')) return;
    this.#take();
    const { picture } = this.thumbnail ?? {};
    if (this.shown !== undefined || picture === undefined || asked.has(picture)) return;
    asked.add(picture);
    // The list works without it: the object may be gone.
    void fetchBytes(`${picture}?thumbnail`)
      .then(async (response) => {
        if (response.status === 200) keepThumbnail(picture, await response.blob());
      })
      .catch(() => undefined);
  }

  #take = (): void => {
    const { model = '', picture = '' } = this.thumbnail ?? {};
    this.shown = pictures.get(model) ?? pictures.get(picture);
  };

  protected override render(): TemplateResult | typeof nothing {
    if (this.shown === undefined) return nothing;
    return html`<img src=${this.shown} alt="" decoding="async" @error=${this.#fail} />`;
  }

  #fail = (): void => {
    this.shown = undefined;
  };
}

customElements.define('row-thumbnail', RowThumbnail);
