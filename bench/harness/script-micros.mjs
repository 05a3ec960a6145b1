/** Redis' own time for scripts, µs since its statistics were reset. EVAL too: the first call of a script that it does not know yet. */
export async function scriptMicros(control) {
  const stats = await control.info('commandstats')
  const calls = [...stats.matchAll(/^cmdstat_(?:eval|evalsha):.*?\busec=(\d+)/gm)]
  return calls.reduce((sum, [, micros]) => sum + Number(micros), 0)
}
