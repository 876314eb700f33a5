import type { Page } from 'playwright-core';

/** The picture of an element, as the user sees it. */
export interface Pixels {
  readonly width: number;
  readonly height: number;
  /** Red, green, blue and opacity of each pixel, 0 to 255. */
  readonly values: readonly number[];
}

/** Decodes a PNG. The browser does it, because Node cannot. */
export async function pixelsOf(page: Page, png: Buffer): Promise<Pixels> {
  return page.evaluate(
    async (address) => {
      const image = new Image();
      image.src = address;
      await image.decode();
      const canvas = new OffscreenCanvas(image.width, image.height);
      const context = canvas.getContext('2d');
      if (context === null) throw new Error('There is no canvas.');
      context.drawImage(image, 0, 0);
      const { width, height, data } = context.getImageData(0, 0, image.width, image.height);
      return { width, height, values: [...data] };
    },
    `data:image/png;base64,${png.toString('base64')}`,
  );
}

/** The share of the pixels that are like this colour, 0 to 1. */
export function shareOf({ values }: Pixels, [red, green, blue]: readonly [number, number, number]): number {
  let alike = 0;
  for (let at = 0; at < values.length; at += 4) {
    const far = [red, green, blue].map((each, channel) => Math.abs(each - (values[at + channel] ?? 0)));
    if (Math.max(...far) <= 40) alike += 1;
  }
  return (alike * 4) / values.length;
}

/** The share of the pixels that differ, 0 to 1. */
export function difference(one: Pixels, other: Pixels): number {
  let different = 0;
  for (let at = 0; at < one.values.length; at += 4) {
    const far = [0, 1, 2].map((channel) =>
      Math.abs((one.values[at + channel] ?? 0) - (other.values[at + channel] ?? 0)),
    );
    if (Math.max(...far) > 24) different += 1;
  }
  return (different * 4) / one.values.length;
}
