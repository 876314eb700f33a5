import type { ModelViewerElement } from '@google/model-viewer';
import { html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { printable } from '../../functions/base/printable.ts';
import type { StoredObject } from '../api.ts';
import { ICONS } from './icons.ts';
import { LightElement } from './light-element.ts';
import { checkModel } from './model-check.ts';
import { keepThumbnail } from './row-thumbnail.ts';
import { fetchBytes, messageOf } from './server.ts';
import { size, splitKey } from './words.ts';

/** Of a longer text, only the beginning is shown. */
const TEXT_BYTES_MAX = 64 * 1024;
/** Maximum size of a picture or a model that is loaded unasked, in bytes. */
const SHOWN_BYTES_MAX = 32 * 1024 * 1024;

type Kind = 'model' | 'picture' | 'document' | 'text' | 'json' | 'sound' | 'film' | 'other';

/** One object of the inbox or of the results, shown in place if a browser can do so without danger. */
export class StoredObjectView extends LightElement {
  static override readonly properties = {
    object: { attribute: false },
    /** `Input`, `Asset 1` */
    label: { attribute: false },
    isWanted: { state: true },
    text: { state: true },
    problem: { state: true },
    modelUrl: { state: true },
    documentUrl: { state: true },
  };
  declare object: StoredObject;
  declare label: string;
  /** True if the user wants to see it although it is large. */
  declare isWanted: boolean;
  declare text: string | undefined;
  declare problem: string | undefined;
  /** Address of a checked model in memory, once the viewer is there. */
  declare modelUrl: string | undefined;
  /** Address of a PDF in memory. */
  declare documentUrl: string | undefined;
  #viewer: typeof import('./viewer.ts') | undefined;

  protected override willUpdate(changed: PropertyValues): void {
    const before = changed.get('object') as StoredObject | undefined;
    if (!changed.has('object') || before?.url === this.object.url) {
      if (changed.has('isWanted')) this.#load();
      return;
    }
    this.isWanted = false;
    this.#forgetModel();
    this.#forgetDocument();
    this.text = undefined;
    this.problem = undefined;
    this.#load();
  }

  protected override render(): TemplateResult {
    const { object, label } = this;
    const { name } = splitKey(object.key);
    return html`<figure class="object" data-kind=${kindOf(object)}>
      <div class="stage">${this.#content()}</div>
      <figcaption>
        <span class="object-label">${label}</span>
        <span class="name"><bdi title=${printable(object.key)}>${name}</bdi></span>
        <span class="muted">${object.mediaType}, ${size(object.bytes)}</span>
        <a class="button quiet small" href="${object.url}&download" download>
          ${ICONS.download} Download<span class="visually-hidden"> ${name}</span>
        </a>
      </figcaption>
    </figure>`;
  }

  #content(): TemplateResult | typeof nothing {
    const { object, label, problem, text } = this;
    const kind = kindOf(object);
    if (problem !== undefined) return html`<p class="stage-note muted">${problem}</p>`;
    if (kind === 'other') return html`<p class="stage-note muted">It cannot be shown here. Download it to open it.</p>`;
    if (!this.#isLoaded()) {
      return html`<div class="stage-note">
        <p class="muted">It is large: ${size(object.bytes)}.</p>
        <button type="button" class="quiet" @click=${this.#want}>Show it</button>
      </div>`;
    }
    const name = splitKey(object.key).name;
    switch (kind) {
      case 'model':
        return this.#model(name);
      case 'document':
        return this.#document(name);
      case 'picture':
        return html`<img src=${object.url} alt="${label}: ${name}" @error=${this.#fail} />`;
      case 'sound':
        return html`<audio src=${object.url} controls aria-label=${name} @error=${this.#fail}></audio>`;
      case 'film':
        return html`<video src=${object.url} controls aria-label=${name} @error=${this.#fail}></video>`;
      default:
        if (text === undefined) return html`<p class="stage-note muted">Loading…</p>`;
        // biome-ignore format: the text begins and ends exactly at the tags
        return html`<pre class="text" tabindex="0" aria-label="${label}: ${name}">${text}</pre>${
          object.bytes > TEXT_BYTES_MAX
            ? html`<p class="stage-note muted">The first ${size(TEXT_BYTES_MAX)} of ${size(object.bytes)}.</p>`
            : nothing
        }`;
    }
  }

  #model(name: string): TemplateResult {
    if (this.modelUrl === undefined) return html`<p class="stage-note muted">Loading the viewer…</p>`;
    return html`<model-viewer
        src=${this.modelUrl}
        alt="3D model ${name}"
        camera-controls
        touch-action="pan-y"
        interaction-prompt="none"
        camera-orbit="20deg 75deg auto"
        min-camera-orbit="auto 0deg auto"
        max-camera-orbit="auto 180deg auto"
        shadow-intensity="0.6"
        @error=${this.#fail}
        @poster-dismissed=${this.#keepThumbnail}
      ></model-viewer>
      <button type="button" class="icon-button full-screen" @click=${this.#fullScreen}>
        ${ICONS.expand}<span class="visually-hidden">Show ${name} on the full screen</span>
      </button>`;
  }

  /**
   * The viewer of the browser, in a frame. It runs apart from the page, and what a PDF runs stays in it. No browser shows
   * a PDF in a sandboxed frame, or one that is served with the policy `sandbox`. So the page gives the frame its own copy
   * of the bytes, which is a PDF and nothing else, whatever they hold.
   */
  #document(name: string): TemplateResult {
    if (!navigator.pdfViewerEnabled) {
      return html`<p class="stage-note muted">This browser shows no PDF in a page. Download it to open it.</p>`;
    }
    if (this.documentUrl === undefined) return html`<p class="stage-note muted">Loading…</p>`;
    return html`<iframe src=${this.documentUrl} title="${this.label}: ${name}"></iframe>`;
  }

  #isLoaded(): boolean {
    const isStreamed = ['text', 'json', 'sound', 'film'].includes(kindOf(this.object));
    return this.isWanted || isStreamed || this.object.bytes <= SHOWN_BYTES_MAX;
  }

  #load(): void {
    if (!this.#isLoaded()) return;
    const kind = kindOf(this.object);
    if (kind === 'text' || kind === 'json') void this.#loadText(kind);
    if (kind === 'model') void this.#loadModel();
    if (kind === 'document' && navigator.pdfViewerEnabled) void this.#loadDocument();
  }

  async #loadText(kind: 'text' | 'json'): Promise<void> {
    const { url, bytes } = this.object;
    try {
      const isPart = bytes > TEXT_BYTES_MAX;
      const response = await fetchBytes(url, isPart ? { range: `bytes=0-${TEXT_BYTES_MAX - 1}` } : {});
      const text = await response.text();
      if (url === this.object.url) this.text = kind === 'json' && !isPart ? indented(text) : text;
    } catch (error) {
      if (url === this.object.url) this.problem = messageOf(error);
    }
  }

  /** Gives the viewer a model that is checked. It loads the model from memory, and nothing from elsewhere. */
  async #loadModel(): Promise<void> {
    const { url } = this.object;
    try {
      const loading = import('./viewer.ts').catch(() => {
        throw new Error('The viewer could not be loaded. Reload the page, or download the model.');
      });
      const [response, viewer] = await Promise.all([fetchBytes(url), loading]);
      const model = new Uint8Array(await response.arrayBuffer());
      checkModel(model);
      if (url !== this.object.url || !this.isConnected) return;
      this.#forgetModel();
      this.#viewer = viewer;
      this.modelUrl = viewer.giveModel(model);
    } catch (error) {
      if (url === this.object.url) this.problem = messageOf(error);
    }
  }

  async #loadDocument(): Promise<void> {
    const { url } = this.object;
    try {
      const bytes = await (await fetchBytes(url)).arrayBuffer();
      if (url !== this.object.url || !this.isConnected) return;
      this.#forgetDocument();
      this.documentUrl = URL.createObjectURL(new Blob([bytes], { type: 'application/pdf' }));
    } catch (error) {
      if (url === this.object.url) this.problem = messageOf(error);
    }
  }

  #forgetDocument(): void {
    if (this.documentUrl !== undefined) URL.revokeObjectURL(this.documentUrl);
    this.documentUrl = undefined;
  }

  #forgetModel(): void {
    if (this.modelUrl !== undefined) this.#viewer?.forgetModel(this.modelUrl);
    this.modelUrl = undefined;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    if (this.hasUpdated) this.#load();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#forgetModel();
    this.#forgetDocument();
  }

  #fail = (): void => {
    this.problem =
      'It cannot be shown here: the file is damaged, or the browser does not know its format. Download it to open it.';
  };

  /** What the viewer shows first becomes the picture of the model in the list. */
  #keepThumbnail = ({ target }: Event): void => {
    const { url } = this.object;
    void (target as ModelViewerElement).toBlob({ mimeType: 'image/webp', idealAspect: true }).then(
      (picture) => keepThumbnail(new URL(url, location.href).pathname, picture),
      () => undefined,
    );
  };

  #want = (): void => {
    this.isWanted = true;
  };

  #fullScreen = (): void => {
    const stage = this.querySelector('.stage');
    if (document.fullscreenElement === null) void stage?.requestFullscreen();
    else void document.exitFullscreen();
  };
}

/** What the page makes of an object. The server says what it serves with its media type. */
function kindOf({ mediaType, isShown }: StoredObject): Kind {
  const type = mediaType.split(';')[0]?.trim().toLowerCase() ?? '';
  if (!isShown) return 'other';
  if (type === 'model/gltf-binary') return 'model';
  if (type.startsWith('image/')) return 'picture';
  if (type.startsWith('audio/')) return 'sound';
  if (type.startsWith('video/')) return 'film';
  if (type === 'application/pdf') return 'document';
  if (type === 'application/json') return 'json';
  return type.startsWith('text/') ? 'text' : 'other';
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text;
  }
}

customElements.define('stored-object', StoredObjectView);
