Register-ArgumentCompleter -Native -CommandName advisor -ScriptBlock {
  param($word, $line, $at)
  $known = @{
{cases}
  }
  $typed = @($line.CommandElements | ForEach-Object { "$_" })
  $first = $typed.Count -lt 2 -or ($typed.Count -eq 2 -and $word)
  $words = if ($first) { $known.Keys | Sort-Object } else { $known[$typed[1]] }
  $words | Where-Object { $_ -like "$word*" } |
    ForEach-Object { [System.Management.Automation.CompletionResult]::new($_) }
}
