/**
 * A token as it is, and the inside of its base64 at each of the three places where it can begin among the encoded
 * bytes. None of them may be in anything that is kept.
 */
export function tokenSpellings(token: string): readonly string[] {
  const encoded = ['', ' ', '  '].flatMap((before) =>
    // The first and the last four characters may hold bits of what stands beside the token.
    (['base64', 'base64url'] as const).map((form) =>
      Buffer.from(before + token)
        .toString(form)
        .slice(4, -4),
    ),
  );
  return [token, encodeURIComponent(token), ...encoded];
}
