import { keyInAddress } from './server.ts';
import './flowdrop-page.ts';

// The address of another run may be opened in a tab that shows this page already.
window.addEventListener('hashchange', () => {
  if (keyInAddress() !== undefined) window.location.reload();
});
