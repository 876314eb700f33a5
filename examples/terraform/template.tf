locals {
  files = jsondecode(file("${var.assembly}/${var.stack}.assets.json")).files

  # The template is larger than Terraform can send, so it is one of the uploaded files.
  upload = one(flatten([
    for each in local.files : values(each.destinations) if each.source.path == "${var.stack}.template.json"
  ]))

  # Without deployment.account and .region, the name of the bucket has placeholders.
  bucket = replace(replace(local.upload.bucketName, "$${AWS::AccountId}", var.account), "$${AWS::Region}", var.region)

  # Addresses of AWS end in another domain in China and in the European Sovereign Cloud.
  domains = { cn = "amazonaws.com.cn", eusc = "amazonaws.eu" }
  domain  = lookup(local.domains, split("-", var.region)[0], "amazonaws.com")

  template_url = "https://${local.bucket}.s3.${var.region}.${local.domain}/${local.upload.objectKey}"
}
