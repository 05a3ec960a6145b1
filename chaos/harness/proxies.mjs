/** What was passed on for the dead is still answered, and told. */
export function closeSoon({ proxy }) {
  setTimeout(() => proxy.close(), 3_000).unref()
}
