import { html, nothing, type TemplateResult } from 'lit';
import { printable } from '../../functions/base/printable.ts';
import type { CostRow, Costs } from '../api.ts';
import { Dialog } from './dialogs.ts';
import { getCosts, messageOf } from './server.ts';
import { money, paidTwice, plural } from './words.ts';

/** What the flows of each route cost, today and in the last 30 days. Tells `costs` when it has asked for them. */
export class CostsDialog extends Dialog {
  static override readonly properties = { costs: { attribute: false }, problem: { state: true } };
  /** As they were last asked for. */
  declare costs: Costs | undefined;
  declare problem: string | undefined;

  async open(): Promise<void> {
    this.problem = undefined;
    await this.show();
    try {
      this.tell('costs', await getCosts());
    } catch (error) {
      this.problem = messageOf(error);
    }
  }

  protected override heading(): string {
    return 'What it cost';
  }

  protected override content(): TemplateResult {
    const { costs, problem } = this;
    return html`
      ${problem === undefined ? nothing : html`<p class="note problem" role="alert">${problem}</p>`}
      ${costs === undefined ? nothing : table(costs)}
    `;
  }
}

function table({ today, lately }: Costs): TemplateResult {
  const { since, until, rows, total } = lately;
  if (rows.length === 0) return html`<p>No flow was counted from ${since} to ${until} (days in UTC).</p>`;
  const line = (name: string, spent: CostRow | undefined, before: CostRow) => html`<tr>
    <th scope="row">${name}</th>
    ${cell(spent)} ${cell(before)}
  </tr>`;
  return html`
    <table class="costs">
      <caption>
        Flows from ${since} to ${until} (days in UTC), as they were counted when they were sent
      </caption>
      <thead>
        <tr>
          <th scope="col">Route</th>
          <th scope="col">Today</th>
          <th scope="col">30 days</th>
        </tr>
      </thead>
      <tbody>
        ${rows.map((row) =>
          line(
            printable(row.name),
            today.rows.find(({ name }) => name === row.name),
            row,
          ),
        )}
      </tbody>
      ${rows.length === 1 ? nothing : html`<tfoot>${line('Total', today.total, total)}</tfoot>`}
    </table>
  `;
}

function cell(row: CostRow | undefined): TemplateResult {
  if (row === undefined || row.flows === 0) return html`<td>–</td>`;
  const { amounts, flows } = row;
  return html`<td>
    <strong>${money(row)}</strong>
    ${Object.keys(amounts).length === 0 ? nothing : html`<span class="muted">${plural(flows, 'flow')}</span>`}
    ${row.mayBeSecond === 0 ? nothing : html`<span class="paid-twice">${paidTwice(row)}</span>`}
  </td>`;
}

customElements.define('costs-dialog', CostsDialog);
