import { html, nothing, type TemplateResult } from 'lit';
import { printable, printableLines } from '../../functions/base/printable.ts';
import type { SentRequest, ServiceAnswer, UploadDetail } from '../api.ts';
import { LightElement } from './light-element.ts';
import { askService, getRequest, messageOf } from './server.ts';
import { clockTime, fullTime } from './words.ts';
import './copy-button.ts';

/** Time between an answer and the next question about a flow that runs, in milliseconds. */
const ASK_AGAIN_MS = 5_000;

/** The request for the flow of an upload, and what the service answers about it: while the flow runs, or on a click. */
export class UploadService extends LightElement {
  static override readonly properties = {
    detail: { attribute: false },
    now: { attribute: false },
    isRequestOpen: { state: true },
    request: { state: true },
    answer: { state: true },
    isAsking: { state: true },
  };
  declare detail: UploadDetail;
  declare now: number;
  declare isRequestOpen: boolean;
  declare request: SentRequest | undefined;
  declare answer: ServiceAnswer | undefined;
  declare isAsking: boolean;
  /** What is shown: an upload, and its flow. A retry makes another flow. */
  #subject = '';
  #answeredAt = Number.NEGATIVE_INFINITY;
  #isLoading = false;

  protected override willUpdate(): void {
    const { row, upload } = this.detail;
    const subject = `${upload.id} ${upload.generation} ${upload.flow?.id}`;
    if (subject !== this.#subject) {
      this.#subject = subject;
      this.request = undefined;
      this.answer = undefined;
      this.#answeredAt = Number.NEGATIVE_INFINITY;
    }
    if (this.isRequestOpen && this.request === undefined && !this.#isLoading) void this.#load();
    if (row.state === 'running' && !this.isAsking && this.now - this.#answeredAt >= ASK_AGAIN_MS) void this.#ask();
  }

  async #load(): Promise<void> {
    this.#isLoading = true;
    const subject = this.#subject;
    const request = await getRequest(this.detail.upload.id).catch((error: unknown) => ({ issue: messageOf(error) }));
    this.#isLoading = false;
    if (subject === this.#subject) this.request = request;
    else this.requestUpdate();
  }

  #ask = async (): Promise<void> => {
    this.isAsking = true;
    const subject = this.#subject;
    const answer = await askService(this.detail.upload.id).catch(
      (error: unknown): ServiceAnswer => ({ askedAt: new Date().toISOString(), issue: messageOf(error) }),
    );
    this.isAsking = false;
    if (subject !== this.#subject) return;
    this.#answeredAt = Date.now();
    this.answer = answer;
    this.tell('service-answer', answer);
  };

  protected override render(): TemplateResult {
    const { flow, endedAt } = this.detail.upload;
    const isSent = flow !== undefined || endedAt !== undefined;
    return html`<section class="service" aria-labelledby="service-title">
      <h3 id="service-title">Service</h3>
      <details @toggle=${this.#openRequest}>
        <summary>What the service ${isSent ? 'was' : 'will be'} sent</summary>
        ${this.#request(this.request)}
      </details>
      ${
        flow === undefined
          ? nothing
          : html`<details>
              <summary>What it answers</summary>
              ${this.#answers()}
            </details>`
      }
    </section>`;
  }

  #request(sent: SentRequest | undefined): TemplateResult {
    if (sent === undefined) return html`<p class="muted">Loading…</p>`;
    const { request, issue } = sent;
    if (request === undefined) return html`<p>${printable(issue ?? 'Nothing.')}</p>`;
    return html`<p class="muted">The data of the file is cut.</p>
      ${shown(request, 'the request')}`;
  }

  #answers(): TemplateResult {
    const { answer, isAsking, detail } = this;
    const { row, upload } = detail;
    const { failure } = upload;
    return html`
      ${failure === undefined ? nothing : html`<p>When it ended: ${printable(failure.message)}</p>`}
      ${
        row.state === 'running'
          ? html`<p class="muted">While this file is open, the service is asked every few seconds. That is free.</p>`
          : html`<p>
              <button type="button" class="quiet small" ?disabled=${isAsking} @click=${this.#ask}>
                ${isAsking ? 'Asking…' : 'Ask the service now'}
              </button>
              <span class="muted">That is free.</span>
            </p>`
      }
      ${answer === undefined ? nothing : this.#answer(answer)}
    `;
  }

  #answer({ askedAt, says, answer, issue }: ServiceAnswer): TemplateResult {
    return html`<p>
        <time class="muted" datetime=${askedAt} title=${fullTime(askedAt)}>${clockTime(askedAt, this.now)}</time>
        ${printable(says ?? `There is no answer. ${issue ?? ''}`)}
      </p>
      ${answer === undefined ? nothing : shown(answer, 'the answer')}`;
  }

  #openRequest = (event: Event): void => {
    this.isRequestOpen = (event.currentTarget as HTMLDetailsElement).open;
  };
}

// biome-ignore format: the text begins and ends exactly at the tags
const shown = (text: string, label: string): TemplateResult =>
  html`<copy-button .text=${text} .label=${label}></copy-button>
    <pre class="text" tabindex="0" aria-label=${label}>${printableLines(text)}</pre>`;

customElements.define('upload-service', UploadService);
