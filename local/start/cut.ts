import stringWidth from 'string-width';

/**
 * The text in at most so many columns. Letters of Asian scripts and emoji have two columns, and are not cut in half.
 */
export function cut(text: string, columns: number): string {
  if (stringWidth(text) <= columns) return text;
  let shown = '';
  let left = columns - 1;
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    left -= stringWidth(segment);
    if (left < 0) break;
    shown += segment;
  }
  return columns > 0 ? `${shown}…` : '';
}
