import './flowdrop-page.ts';
